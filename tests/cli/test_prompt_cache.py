"""--prompt-cache-file: run and chat go on from a conversation's state in a file, with the same answers as without it; what is
damaged, foreign or cannot be written is an error that names the file (standard library only)."""

import fcntl
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from tally import Tally  # noqa: E402
from terncli import BINARY, tern  # noqa: E402
from waiting import DEADLINE, hear  # noqa: E402

GOLDEN = HERE.parent / "golden"
FLAG = "--prompt-cache-file"
SAID = "the quick brown fox jumps over the lazy dog and then over all the others"
tally = Tally()


def run(model, prompt, *flags):
    done = tern("run", model, prompt, "--json", "--temp", "0.7", "--seed", "3", *flags)
    if done.status != 0:
        return {"error": done.err}
    return json.loads(done.out)


def refused(label, words, model, *flags, prompt="x"):
    done = tern("run", model, prompt, *flags)
    tally.check(f"refused: {label}", done.status == 1 and not done.out and all(w in done.error_line for w in (FLAG, *words)), done)


def test_answers(name, flags, folder):
    """The same prompt again, one that begins like it, another one; with and without the file."""
    model, file = GOLDEN / name / "model", folder / f"{name}.cache"
    for prompt, found in ((SAID, 0), (SAID, 30), (f"{SAID} lie", 20), ("Hello", 0), ("Hello, you", 1)):
        want, got = run(model, prompt, *flags), run(model, prompt, FLAG, file, *flags)
        tally.check(f"{name}: the same answer", "ids" in got and got["ids"] == want["ids"], f"{got} {want}")
        cached = got.get("usage", {}).get("cached_tokens", -1)
        tally.check(f"{name}: {prompt[-12:]}: found", cached >= found, got)
    tally.check(f"{name}: for its user alone", file.stat().st_mode & 0o777 == 0o600, oct(file.stat().st_mode))
    tally.check(f"{name}: nothing beside it", [f.name for f in folder.iterdir() if f.name.startswith(name)] == [file.name], list(folder.iterdir()))


def test_no_answer(folder):
    """--max-tokens 0 reads the prompt for a later one."""
    model, file = GOLDEN / "llama-4bit" / "model", folder / "read"
    made = run(model, SAID, "--raw", FLAG, file, "--max-tokens", 0)
    tally.check("read alone", made.get("ids") == [] and made["finish_reason"] == "length", made)
    got, want = (run(model, f"{SAID} lie", "--raw", *more) for more in ((FLAG, file), ()))
    tally.check("read alone: found", got["ids"] == want["ids"] and got["usage"]["cached_tokens"] > 20, f"{got} {want}")


def test_chat(folder):
    """A conversation that is loaded finds its state."""
    model, file, saved = GOLDEN / "gemma3-bf16" / "model", folder / "chat", folder / "talk.json"
    flags = ("--max-tokens", "12", "--stats", "--seed", "3")
    first = tern("chat", model, FLAG, file, *flags, stdin=f"{SAID}\n/save {saved}\n".encode())
    tally.check("chat: ends well", first.status == 0 and file.exists() and saved.exists(), first)
    more = f"/load {saved}\nand of the cat?\n".encode()
    plain = tern("chat", model, *flags, stdin=more)
    again = tern("chat", model, FLAG, file, *flags, stdin=more)
    tally.check("chat: the same answer", again.status == 0 and again.out == plain.out, f"{again} {plain}")
    tally.check("chat: found", "(0 cached)" in plain.err and "(0 cached)" not in again.err and " cached)" in again.err, again.err)
    cleared = tern("chat", model, "--max-tokens", "2", stdin=b"hi\n/clear\n/stats\n")
    tally.check("chat: nothing is in use after /clear", "0 messages, 0 of" in cleared.err, cleared.err)
    dos, unix = (tern("chat", model, "--max-tokens", "2", stdin=text) for text in (b"hi\r\n/exit\r\nhi\r\n", b"hi\n/exit\n"))
    tally.check("chat: lines that end in CR LF are lines", dos.status == 0 and "unknown" not in dos.err and dos.out == unix.out, dos)
    before = file.read_bytes()
    idle = tern("chat", model, FLAG, file, stdin=b"/exit\n")
    tally.check("chat: nothing said, nothing lost", idle.status == 0 and file.read_bytes() == before, idle)


def test_links(folder):
    """A link to nothing stays one: what it leads to comes to be."""
    model, place = GOLDEN / "llama-4bit" / "model", folder / "links"
    (place / "deep").mkdir(parents=True)
    (place / "one").symlink_to("deep/two")
    (place / "deep" / "two").symlink_to("three")
    made = run(model, SAID, FLAG, place / "one")
    tally.check("a link to nothing", "ids" in made and (place / "one").is_symlink() and (place / "deep" / "two").is_symlink() and (place / "deep" / "three").is_file() and not (place / "deep" / "three").is_symlink(), made)
    made = run(model, SAID, FLAG, place / "one")
    tally.check("which is found through it", made.get("usage", {}).get("cached_tokens", 0) > 20, made)
    (place / "loop").symlink_to("loop")
    refused("a link to itself", ["loop"], model, FLAG, place / "loop")
    tally.check("which stays", (place / "loop").is_symlink())


def test_killed(folder):
    """What a killed writer left beside the file goes with the next one; a live one's and other names stay."""
    model, place = GOLDEN / "llama-4bit" / "model", folder / "killed"
    place.mkdir()
    left, live, others = place / "p.tern-abcdef", place / "p.tern-ghijkl", [place / "p.backup", place / "p.tern-abcdefg", place / "pp.tern-abcdef"]
    for path in left, live, *others:
        path.write_bytes(b"x" * 1000)
    with live.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        made = run(model, SAID, FLAG, place / "p")
    there = set(place.iterdir())
    tally.check("killed: what was left is gone, and nothing else", "ids" in made and there == {live, place / "p", *others}, there)


def test_save_fails(folder):
    """However a conversation ends, a file that could not be written is told of."""
    model, place = GOLDEN / "llama-4bit" / "model", folder / "gone"
    place.mkdir()
    process = subprocess.Popen([BINARY, "chat", model, FLAG, place / "p", "--max-tokens", "2", "--stats"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process.stdin.write(b"hello\n")
    process.stdin.flush()
    said = hear(process.stderr.fileno(), lambda said: b"peak memory" in said)
    shutil.rmtree(place)
    process.terminate()
    said += process.communicate(timeout=DEADLINE)[1]
    tally.check("SIGTERM, and no place to save at", process.returncode != 0 and FLAG.encode() in said and b"gone/p" in said, said)


def test_refused(folder):
    model, file = GOLDEN / "llama-4bit" / "model", folder / "one"
    run(model, SAID, FLAG, file)
    whole = file.read_bytes()
    refused("another model's", [str(file), "another model"], GOLDEN / "gemma3-bf16" / "model", FLAG, file)
    refused("another arithmetic's", [str(file), "another model"], model, FLAG, file, "--numerics", "fast")
    refused("other keys and values", [str(file), "another model"], model, FLAG, file, "--kv-bits", "8", "--kv-group-size", "32")
    tally.check("refused: stays as it is", file.read_bytes() == whole)
    for label, data in (("a bit", whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]), ("cut", whole[:-64]), ("empty", b""), ("text", b"x" * 4096), ("its head", b"T" + bytes([whole[1] ^ 1]) + whole[2:])):
        file.write_bytes(data)
        refused(f"damaged: {label}", [str(file), "remove it"], model, FLAG, file)
        tally.check(f"damaged: {label}: stays", file.read_bytes() == data)
    file.write_bytes(whole)
    file.chmod(0o662)
    refused("others may write", [str(file), "others may write"], model, FLAG, file)
    file.chmod(0o600)
    refused("a folder", ["not a regular file"], model, FLAG, folder)
    refused("no folder", ["/no/where"], model, FLAG, "/no/where/file")
    refused("no name", [], model, FLAG, "")
    done = tern("serve", model, FLAG, file)
    tally.check("serve has its own", done.status == 2 and FLAG in done.err, done)


def test_full(folder):
    """The answer is there and the state cannot be written: an error, and what was there stays."""
    model, file = GOLDEN / "llama-4bit" / "model", folder / "full" / "file"
    file.parent.mkdir()

    def limit():  # Python's children do not die of the signal that a file too large sends
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    def save(prompt):
        done = subprocess.run([BINARY, "run", str(model), prompt, "--no-prepare", FLAG, str(file)], capture_output=True, text=True, preexec_fn=limit, restore_signals=False)
        return done.returncode == 1 and done.stdout and str(file) in done.stderr and "too large" in done.stderr, done

    tally.check("no room", *save(SAID))
    tally.check("no room: nothing is left", not list(file.parent.iterdir()), list(file.parent.iterdir()))
    run(model, SAID, FLAG, file)
    whole = file.read_bytes()
    tally.check("no room for more", *save(f"{SAID} lie"))
    tally.check("no room for more: what was there stays", [*file.parent.iterdir()] == [file] and file.read_bytes() == whole)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, flags in (("llama-4bit", ()), ("gemma3-bf16", ()), ("llama-sliding-8bit", ()), ("qwen3-f16", ("--numerics", "fast")), ("llama-4bit", ("--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0"))):
            for old in folder.iterdir():
                old.unlink()
            test_answers(model, flags, folder)
        test_no_answer(folder)
        test_chat(folder)
        test_links(folder)
        test_killed(folder)
        test_save_fails(folder)
        test_refused(folder)
        test_full(folder)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
