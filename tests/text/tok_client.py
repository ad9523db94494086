"""Talks to tok_driver (see tok_driver.c): one process per tokenizer directory."""
import subprocess


class Refused(Exception):
    pass


class Driver:
    def __init__(self, program, directory):
        self.p = subprocess.Popen([program, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  encoding="ascii", errors="replace")
        line = self.p.stdout.readline()
        if not line.startswith("ready"):
            self.p.wait()
            raise Refused(line[2:].strip() or "died with %d" % self.p.returncode)
        self.ready = float(line.split()[1])

    def ask(self, request):
        self.p.stdin.write(request + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line.endswith("\n"):
            self.p.wait()
            raise RuntimeError("driver died with %d on %s" % (self.p.returncode, request[:200]))
        if line.startswith("!"):
            raise Refused(line[2:].strip())
        return line[:-1]

    def encode(self, text, special=False):
        data = text if isinstance(text, bytes) else text.encode()
        return [int(i) for i in self.ask("E %d %s" % (special, data.hex())).split()]

    def decode(self, ids, skip=False):
        return bytes.fromhex(self.ask("D %d %s" % (skip, " ".join(map(str, ids))))).decode()

    def stream(self, ids, skip=False):
        return [bytes.fromhex(p).decode() for p in self.ask("S %d %s" % (skip, " ".join(map(str, ids)))).split(",")]

    def piece(self, token):
        line = self.ask("P %d" % token)
        return None if line == "none" else bytes.fromhex(line).decode()

    def time(self, text, times, special=False):
        seconds, ids = self.ask("T %d %d %s" % (times, special, text.encode().hex())).split()
        return float(seconds), int(ids)

    def close(self):
        self.p.stdin.close()
        self.p.wait()
        self.p.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()
