"""GET /library: the models on this machine, with tier and fit, beside the one that is served (standard library only)."""

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "server")]

from serving import Server  # noqa: E402
from tally import Tally  # noqa: E402

GOLDEN = HERE.parent / "golden"
tally = Tally()


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TERN_HOME": folder, "HF_HUB_CACHE": f"{folder}/none"}
        with Server(GOLDEN / "llama-4bit" / "model") as server:
            status, body, _ = server.ask("/library")
            tally.check("an empty library", status == 200 and body == {"object": "list", "data": []}, body)
            shutil.copytree(GOLDEN / "llama-4bit" / "model", Path(folder) / "models" / "me" / "llama")
            broken = Path(folder) / "models" / "me" / "martian"
            broken.mkdir()
            (broken / "config.json").write_text('{"model_type": "martian"}')
            for file in "tokenizer.json", "tokenizer_config.json":
                shutil.copy(GOLDEN / "llama-4bit" / "model" / file, broken)
            shutil.copytree(GOLDEN / "llama-4bit" / "model", Path(folder) / "models" / "me" / "\udcff")
            status, body, _ = server.ask("/library")
            found = {m["id"]: m for m in body["data"]}
            llama, martian = found["me/llama"], found["me/martian"]
            tally.check("a model that came later", status == 200 and llama and llama["type"] == "llama" and llama["runs"] and llama["fits"] and llama["largest_context"] > 0 and llama["tier"] == "generic", body)
            tally.check("one that cannot be run", not martian["runs"] and not martian["fits"] and martian["capabilities"] == [], martian)
            tally.check("and what one that can be run can do", llama["capabilities"][:1] == ["text"], llama)
            tally.check("a name that is not UTF-8", "me/\ufffd" in found, list(found))
            tally.check("no paths", folder not in str(body), body)
            status, _, headers = server.ask("/library", {})
            tally.check("GET alone", status == 405, status)
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(server.ask("/library")[1] == body)) for _ in range(16)]
            for t in threads:
                t.start()
            done = server.ask("/v1/completions", {"prompt": "hello", "max_tokens": 8, "temperature": 0})
            for t in threads:
                t.join()
            tally.check("many at once, beside an answer", answers == [True] * 16 and done[0] == 200, (answers, done))
            tally.check("the server ends well", server.end() == 0)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
