"""What `make install` puts where, and that it works from there: the program, the library by pkg-config and by CMake, man
pages and completions for every verb and flag, and the list of what is linked (standard library only)."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from tally import Tally  # noqa: E402
from terncli import BINARY, BUILD, tern  # noqa: E402

ROOT = HERE.parents[1]
LLAMA = HERE.parent / "golden" / "llama-4bit" / "model"
IDS = ("--ids", "1,2,3,4")
tally = Tally()


def sh(*command, cwd=None, env=None, stdin=""):
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **(env or {})}, input=stdin, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def ok(name, command, **options):
    status, out, err = sh(*command, **options)
    tally.check(name, status == 0, f"exit {status}: {(err or out)[-600:]}")
    return out if status == 0 else None


def install(folder):
    """A prefix under DESTDIR, moved from there: nothing may remember where it was."""
    stage, prefix = folder / "stage", folder / "prefix"
    ok("install", ["cmake", "--install", BUILD, "--prefix", "/opt/tern"], env={"DESTDIR": str(stage)})
    tally.check("DESTDIR: nothing outside", not Path("/opt/tern").exists())
    shutil.move(stage / "opt" / "tern", prefix)
    return prefix


def check_program(prefix):
    program = prefix / "bin" / "tern"
    tally.check("version", ok("runs", [program, "--version"]) == tern("--version").out.decode())
    for verb in ("logits",):
        mine, theirs = sh(program, verb, LLAMA, *IDS), tern(verb, LLAMA, *IDS)
        tally.check(f"{verb} as in the build folder", mine[:2] == (0, theirs.out.decode()), mine[2])


def check_library(prefix, folder):
    libraries = next(prefix.glob("lib*/**/libtern.so")).parent
    pkgconfig = {"PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    run = {"LD_LIBRARY_PATH": str(libraries)}
    hello = ROOT / "examples" / "hello.c"
    want = ok("the example of the build folder", [BUILD / "examples" / "hello", LLAMA])
    for name, static in (("shared", []), ("static", ["--static"])):
        flags = ok(f"pkg-config {name}", ["pkg-config", "--cflags", "--libs", *static, "tern"], env=pkgconfig)
        if flags is None:
            continue
        flags = flags.split()
        if static:
            flags = [str(libraries / "libtern.a") if flag == "-ltern" else flag for flag in flags]
        program = folder / name
        if ok(f"compiles by pkg-config, {name}", ["cc", hello, *flags, "-o", program]) is not None:
            tally.check(f"runs, {name}", ok("example", [program, LLAMA], env=run) == want)
    project = folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(hello C)\nfind_package(tern 0.1 REQUIRED)\n"
        f"add_executable(hello {hello})\ntarget_link_libraries(hello tern::tern_shared)\n"
    )
    configured = ok("find_package", ["cmake", "-S", ".", "-B", "b", f"-DCMAKE_PREFIX_PATH={prefix}"], cwd=project)
    if configured is not None and ok("compiles by find_package", ["cmake", "--build", "b"], cwd=project) is not None:
        tally.check("runs, find_package", ok("example", [project / "b" / "hello", LLAMA], env=run) == want)


def flags_of(verb):
    text = tern("help", verb).out.decode()
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", "\n".join(re.findall(r"^  (-.*?)(?:  |$)", text, re.M))))


def check_pages(prefix, verbs):
    pages = prefix / "share" / "man" / "man1"
    names = {page.name for page in pages.iterdir()}
    tally.check("a page for each verb", names == {"tern.1", *(f"tern-{verb}.1" for verb in verbs)}, str(names))
    for verb in verbs:
        text = (pages / f"tern-{verb}.1").read_text().replace("\\-", "-")
        missing = [flag for flag in flags_of(verb) if f"\\fB{flag}\\fR" not in text]
        tally.check(f"tern-{verb}(1) has the flags", not missing, str(missing))
    if not shutil.which("groff"):
        return tally.skip("pages in groff", "groff is not installed")
    for page in sorted(pages.iterdir()):
        _, _, err = sh("groff", "-man", "-Tutf8", "-wall", "-z", page)
        tally.check(f"{page.name}: groff has no complaint", not err, err[:300])


# What bash offers for a line that ends at the cursor.
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }
_tern; printf '%s\\n' "${COMPREPLY[@]}"
"""


def check_completions(prefix, verbs):
    share = prefix / "share"
    bash = share / "bash-completion" / "completions" / "tern"
    path = {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "TERN_HOME": "/nowhere", "HF_HUB_CACHE": "/nowhere"}

    def offered(*words):
        return set(sh("bash", "-c", BASH, "bash", bash, *words, env=path)[1].split())

    tally.check("bash: verbs", offered("tern", "") == set(verbs), str(offered("tern", "")))
    tally.check("bash: verbs that begin so", offered("tern", "ru") == {"run"})
    for verb in verbs:
        tally.check(f"bash: flags of {verb}", offered("tern", verb, "-") == flags_of(verb), str(offered("tern", verb, "-")))
    tally.check("bash: choices", offered("tern", "run", "--numerics", "") == {"exact", "native", "fast"})
    for verb, before in (("serve", "--numerics"), ("run", "--backend")):
        all_of, part = (("exact", "native", "fast"), "f") if before == "--numerics" else (("auto", "ref", "cpu", "cuda"), "cu")
        some = {word for word in all_of if word.startswith(part)}
        tally.check(f"bash: {before} VALUE", offered("tern", verb, before, part) == some)
        tally.check(f"bash: {before}=VALUE", offered("tern", verb, before, "=", part) == some, offered("tern", verb, before, "=", part))
        tally.check(f"bash: {before}= and nothing yet", offered("tern", verb, before, "=") == set(all_of))
        tally.check(f"bash: {before}=VALUE where = breaks no words", offered("tern", verb, f"{before}={part}") == {f"{before}={word}" for word in some})
    tally.check("bash: files", "CMakeLists.txt" in offered("tern", "run", "--file", str(ROOT) + "/CMakeL").pop())
    tally.check("bash: rm takes no files", offered("tern", "rm", str(ROOT) + "/CMakeL") == set())
    with tempfile.TemporaryDirectory() as home:
        hostile = "$(touch pwned);`touch pwned`*'\""
        model = Path(home) / "models" / "org" / hostile
        shutil.copytree(LLAMA, model)
        path["TERN_HOME"] = home
        said = sh("bash", "-c", BASH, "bash", bash, "tern", "run", "org/$", env=path, cwd=home)[1]
        tally.check("bash: a model's name is text", said == f"org/{hostile}\n", said)
        tally.check("bash: and runs nothing", not list(Path(home).rglob("pwned")))
        path["TERN_HOME"] = "/nowhere"
    tally.check("bash: shells", offered("tern", "completions", "") == {"bash", "zsh", "fish"})
    tally.check("bash: nothing for numbers", offered("tern", "run", "--seed", "") == set())
    for shell, file in (("zsh", share / "zsh" / "site-functions" / "_tern"), ("fish", share / "fish" / "vendor_completions.d" / "tern.fish")):
        text = file.read_text()
        tally.check(f"{shell}: as printed", text == tern("completions", shell).out.decode())
        tally.check(f"{shell}: verbs", all(verb in text for verb in verbs))
        if shutil.which(shell):
            ok(f"{shell}: syntax", [shell, "-n", file])
        else:
            tally.skip(f"{shell}: syntax", f"{shell} is not installed")


def check_foreign_names(prefix, folder):
    """Names of models and files come from elsewhere: they are offered as they are, and no shell runs what is in them."""
    bash = prefix / "share" / "bash-completion" / "completions" / "tern"
    home, here = folder / "home", folder / "here"
    names = {"$(touch ran1)", "`touch ran2`", "${x:=$(touch ran3)}", "two words", "*", "~", "it's"}
    for name in names:
        shutil.copytree(LLAMA, home / "models" / name)
    files = {"$(touch ran4).gguf", "three words here", "?"}
    here.mkdir()
    for name in files:
        (here / name).touch()
    env = {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "TERN_HOME": str(home), "HF_HUB_CACHE": "/nowhere"}

    def offered(*words):
        return set(filter(None, sh("bash", "-c", BASH, "bash", bash, *words, env=env, cwd=here)[1].split("\n")))

    tally.check("bash: models and files as they are", offered("tern", "run", "") == names | files, offered("tern", "run", ""))
    tally.check("bash: those that begin so", offered("tern", "run", "t") == {"two words", "three words here"}, offered("tern", "run", "t"))
    tally.check("bash: of a flag with a model", offered("tern", "run", "--draft-model", "$") == {n for n in names | files if n[0] == "$"})
    tally.check("bash: files of a flag", offered("tern", "run", "--file", "") == files, offered("tern", "run", "--file", ""))
    tally.check("bash: files of a verb", offered("tern", "import", "") == files, offered("tern", "import", ""))
    tally.check("bash: nothing ran", {p.name for p in here.iterdir()} == files, [p.name for p in here.iterdir()])


def check_colons(prefix, folder):
    """ORG/NAME:FILE is three words to bash, of which the last is completed; one where a colon breaks no words."""
    bash = prefix / "share" / "bash-completion" / "completions" / "tern"
    snapshot = folder / "home" / "models--org--two" / "snapshots" / ("1" * 40)
    snapshot.mkdir(parents=True)
    for name in "one.gguf", "the other.gguf":
        (snapshot / name).touch()
    env = {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "TERN_HOME": str(folder / "home"), "HF_HUB_CACHE": "/nowhere"}

    def offered(breaks, *words):
        return set(filter(None, sh("bash", "-c", f"COMP_WORDBREAKS='{breaks}'\n{BASH}", "bash", bash, *words, env=env, cwd=folder / "home")[1].split("\n")))

    both = {"one.gguf", "the other.gguf"}
    whole = {f"org/two:{name}" for name in both}
    for words in ("run",), ("run", "--draft-model"):
        tally.check(f"bash: {words} ORG/NA", offered(" =:", "tern", *words, "org/tw") == whole, offered(" =:", "tern", *words, "org/tw"))
        tally.check(f"bash: {words} ORG/NAME:", offered(" =:", "tern", *words, "org/two", ":") == both, offered(" =:", "tern", *words, "org/two", ":"))
        tally.check(f"bash: {words} ORG/NAME:FI", offered(" =:", "tern", *words, "org/two", ":", "o") == {"one.gguf"}, offered(" =:", "tern", *words, "org/two", ":", "o"))
        tally.check(f"bash: {words}, no break at a colon", offered(" =", "tern", *words, "org/two:o") == {"org/two:one.gguf"}, offered(" =", "tern", *words, "org/two:o"))


def check_shells(prefix):
    """What zsh and fish offer for --flag=VALUE, where they are installed."""
    share = prefix / "share"
    env = {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "HOME": "/nowhere"}
    if shutil.which("fish"):
        file = share / "fish" / "vendor_completions.d" / "tern.fish"
        for line in "tern serve --numerics f", "tern serve --numerics=f":
            said = sh("fish", "--no-config", "-c", f"source {file}; complete -C '{line}'", env=env)[1].split("\n")
            tally.check(f"fish: {line}", {word.split("\t")[0].split("=")[-1] for word in said if word} == {"fast"}, said)
    else:
        tally.skip("fish: values", "fish is not installed", 2)
    text = (share / "zsh" / "site-functions" / "_tern").read_text()
    tally.check("zsh: --numerics takes its value behind = or as a word", re.search(r"'--numerics=\[.*\]:MODE:\(exact native fast\)'", text))


def check_examples(verbs):
    """Every line under Examples is one that tern takes: parsed, and answered with help."""
    for verb in verbs:
        text = tern("help", verb).out.decode()
        lines = re.findall(r"^  (\S.*?)(?:  .*)?$", text.partition("Examples:\n")[2], re.M)
        page = tern("help", "--man", verb).out.decode()
        tally.check(f"{verb}: examples, in the page too", lines and page.partition(".SH EXAMPLES")[2].count(".TP") == len(lines), lines)
        for line in lines:
            words = shlex.split(re.search(r"\btern (.*)", line)[1].rstrip(")").partition(" < ")[0])
            done = tern(*words, "--help")
            tally.check(f"example: {line}", done.status == 0 and words[0] == verb, done.err)


def check_uninstall(folder):
    """What install put there goes, and nothing else."""
    stage = folder / "again"
    prefix = stage / "opt" / "tern"
    ok("install once more", ["cmake", "--install", BUILD, "--prefix", "/opt/tern"], env={"DESTDIR": str(stage)})
    mine = [prefix / "bin" / "other", prefix / "share" / "doc" / "tern" / "mine", prefix / "lib" / "kept"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    ok("uninstall", ["cmake", "-DPREFIX=/opt/tern", "-P", ROOT / "cmake" / "uninstall.cmake"], env={"DESTDIR": str(stage)})
    left = {path for path in stage.rglob("*") if not path.is_dir()}
    tally.check("uninstall leaves what is not tern's, and nothing more", left == set(mine), sorted(map(str, left ^ set(mine)))[:5])
    tally.check("no folder of tern's is left empty", not [p for p in stage.rglob("tern") if p.is_dir() and not any(p.iterdir())])
    status, out, err = sh("cmake", "-DPREFIX=/opt/tern", "-P", ROOT / "cmake" / "uninstall.cmake", env={"DESTDIR": str(stage)})
    tally.check("a second time it says that nothing is there", status != 0 and "no install of tern" in " ".join((out + err).split()), err)
    script, moved = folder / "written.cmake", folder / "moved"
    (moved / "data" / "tern").mkdir(parents=True)
    (moved / "data" / "tern" / "file").write_text("")
    (folder / "write.cmake").write_text(f"configure_file({ROOT}/cmake/installed.cmake.in {script} @ONLY)\n")
    ok("data elsewhere", ["cmake", "-DCMAKE_INSTALL_DATADIR=data", "-DCMAKE_INSTALL_LIBDIR=lib", "-P", folder / "write.cmake"])
    ok("are written down", ["cmake", f"-DCMAKE_INSTALL_PREFIX={moved}", f"-DCMAKE_INSTALL_MANIFEST_FILES={moved}/data/tern/file", "-P", script])
    ok("and uninstalled", ["cmake", f"-DPREFIX={moved}", "-P", ROOT / "cmake" / "uninstall.cmake"])
    tally.check("wherever they were", not [p for p in moved.rglob("*") if not p.is_dir()], list(moved.rglob("*")))
    status, out, err = sh("cmake", "--install", BUILD, "--prefix", str(folder / "odd"))
    tally.check("a place that the dynamic linker does not know is told", status == 0 and "ldconfig" in out and f"rpath,{folder / 'odd'}" in out, out[-300:])


def check_linked():
    """docs/dependencies.md has a row for all that the dynamic linker is asked for."""
    page = (ROOT / "docs" / "dependencies.md").read_text()
    for file in (BINARY, BUILD / "libtern.so", BUILD / "libtern-cuda.so"):
        if not Path(file).exists():
            continue
        needed = re.findall(r"NEEDED.*\[(.*?)\]", ok(f"readelf {file}", ["readelf", "-d", file]) or "")
        tally.check(f"{Path(file).name} needs something", needed)
        for name in needed:
            stem = re.sub(r"\.so.*", "", name)
            tally.check(f"docs/dependencies.md: {name}", f"`{stem}`" in page)


def main():
    if not (BUILD / "described" / "done").exists():
        tally.skip("install", "this build does not describe itself (cross-compiled or instrumented)")
        return tally.close()
    verbs = re.findall(r"^  ([a-z]+)", tern("help").out.decode(), re.M)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix = install(folder)
        check_program(prefix)
        check_library(prefix, folder)
        check_pages(prefix, verbs)
        check_completions(prefix, verbs)
        check_foreign_names(prefix, folder)
        check_colons(prefix, folder)
        check_shells(prefix)
        check_uninstall(folder)
    check_examples(verbs)
    check_linked()
    for bad, why in (((), "no SHELL"), (("tcsh",), '"tcsh" is not')):
        done = tern("completions", *bad)
        tally.check(f"completions {bad}: refused", done.status == 2 and why in done.error_line, done.err)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
