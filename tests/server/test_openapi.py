"""/openapi.json: it tells of the routes that there are, and of their fields as these are checked: every field is sent
values of all other kinds and beyond its range. Then schemathesis makes requests up from it, with a fixed seed.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import GOLDEN, Server, chat  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402

tally = Tally()
KINDS = {"boolean": True, "integer": 7, "number": 1.5, "string": "x", "array": [[]], "object": {"a": 1}}
USER = [{"role": "user", "content": "a"}]
# A body that is answered, for each path that takes one.
GOOD = {
    "/v1/chat/completions": {"messages": USER, "max_tokens": 2},
    "/chat/completions": {"messages": USER, "max_tokens": 2},
    "/v1/completions": {"prompt": "a", "max_tokens": 2},
    "/v1/responses": {"input": "a", "max_output_tokens": 2},
    "/v1/embeddings": {"input": "a"},
    "/v1/messages": {"messages": USER, "max_tokens": 2},
    "/v1/messages/count_tokens": {"messages": USER},
    "/api/chat": {"messages": USER, "options": {"num_predict": 2}},
    "/api/generate": {"prompt": "a", "options": {"num_predict": 2}},
    "/api/embed": {"input": "a"},
    "/api/embeddings": {"prompt": "a"},
    "/api/show": {},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
    "/apply-template": {"messages": USER},
}


def bodies(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                yield path, operation["requestBody"]["content"]["application/json"]["schema"]


def test_document(s, document):
    tally.check("version", document["openapi"] == "3.1.0" and document["info"]["title"] == "tern")
    told = {(method.upper(), re.sub(r"\{.*?\}", "{}", path)) for path, methods in document["paths"].items() for method in methods}
    table = (HERE.parents[1] / "docs" / "server.md").read_text().split("## Routes")[1].split("\n## ")[0]
    written, method = set(), None
    for row in table.splitlines():
        if not row.startswith("| `"):
            continue
        for word in re.findall(r"(?:(GET|POST|DELETE),? )?`?(/[a-zA-Z0-9_./-]*)", row.split(" | ")[0].replace("`", "").replace("also ", "")):
            method = word[0] or method
            written.add((method, re.sub(r"/(NAME|ID)\b", "/{}", word[1])))
    missing = told - written - {("GET", "/v1/responses/{}")} if ("DELETE", "/v1/responses/{}") in written else told - written
    tally.check("docs/server.md has them all", not missing, missing)
    tally.check("and no others", not {w for w in written if w not in told}, written - told)
    for path, methods in document["paths"].items():
        for method in ("get", "post", "delete"):
            status = s.ask(path.replace("{response_id}", "x").replace("{model}", s.name), {} if method == "post" else None, method=method.upper())[0]
            ok = (status == 405) if method not in methods else status not in (405, 501)
            tally.check(f"{method} {path}", ok, status)
    tally.check("every body is known here", {p for p, _ in bodies(document)} == set(GOOD), {p for p, _ in bodies(document)} ^ set(GOOD))


def wrong_values(schema):
    """Values that the schema of a field does not have."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds:
        own = {*kinds, *(["integer"] if "number" in kinds else [])}
        yield from (v for k, v in KINDS.items() if k not in own)
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] * 2 + 1
    if "enum" in schema:
        yield from (v for k, v in KINDS.items() if v not in schema["enum"])


def message_of(answer):
    error = answer.get("error", "") if isinstance(answer, dict) else ""
    return error if isinstance(error, str) else error.get("message", "")


def test_fields(s, document):
    for path, schema in bodies(document):
        good = GOOD[path]
        status, got, _ = s.ask(path, good)
        tally.check(f"{path}: a good one", status == 200, f"{status} {got}")
        status, got, _ = s.ask(path, {**good, "no_such_field": 1})
        tally.check(f"{path}: another field", status == 400 and "no_such_field" in message_of(got), f"{status} {got}")
        for name in schema["required"]:
            status, got, _ = s.ask(path, {k: v for k, v in good.items() if k != name})
            tally.check(f"{path}: without {name}", status == 400 and name in message_of(got), f"{status} {got}")
        for name, of in schema["properties"].items():
            for value in wrong_values(of):
                status, got, _ = s.ask(path, {**good, name: value})
                tally.check(f"{path}: {name} {str(value)[:40]}", status == 400 and name in message_of(got), f"{status} {str(got)[:300]}")
            for value in of.get("enum", []):
                if name not in schema["required"]:
                    status, got, _ = s.ask(path, {**good, name: value})
                    tally.check(f"{path}: {name} {str(value)[:40]} is let be", status == 200, f"{status} {str(got)[:300]}")
            if (path, name) != ("/tokenize", "content") and name not in schema["required"] and "null" in of.get("type", []):
                status, got, _ = s.ask(path, {**good, name: None})
                tally.check(f"{path}: {name} null", status == 200 or (path.startswith("/v1/messages") and name == "max_tokens"), f"{status} {str(got)[:300]}")


def test_made_up(s):
    st = BUILD / "clients" / "bin" / "st"
    if not st.exists():
        tally.skip("schemathesis", "it is not installed (scripts/clients.sh installs it)")
        return
    with tempfile.TemporaryDirectory() as folder:  # it leaves files where it runs
        done = subprocess.run(
            [str(st), "run", f"http://127.0.0.1:{s.port}/openapi.json", "--seed", "1", "--max-examples", "10", "--phases", "examples,coverage,fuzzing",
             "--checks", "not_a_server_error,negative_data_rejection,content_type_conformance,status_code_conformance,unsupported_method",
             "--generation-deterministic", "--no-shrink", "--continue-on-failure", "--request-timeout", "300", "--suppress-health-check", "too_slow", "--no-color", "--warnings", "off"],
            cwd=folder, capture_output=True, text=True, timeout=1500)
    made = re.search(r"(\d+) generated", done.stdout)
    tally.check("schemathesis", done.returncode == 0 and made and int(made[1]) > 500, done.stdout[-6000:] + done.stderr[-500:])


def main():
    with Server(GOLDEN / "llama-4bit" / "model", "--max-tokens", 8) as s:
        status, document, _ = s.ask("/openapi.json")
        if tally.check("/openapi.json", status == 200, document):
            test_document(s, document)
            test_fields(s, document)
            test_made_up(s)
        tally.check("goes on", s.ask("/v1/chat/completions", chat("Hello"))[0] == 200)
        tally.check("ends well", s.end() == 0, s.status)
    with Server(GOLDEN / "llama-4bit" / "model", "--api-key", "k") as s:
        document = s.ask("/openapi.json", headers={"x-api-key": "k"})[1]
        tally.check("says that a key is wanted", document["security"] == [{"key": []}], document.get("security"))
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
