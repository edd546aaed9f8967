#!/usr/bin/env python3
"""The proof at full size on a machine with a GPU: builds the engine, makes the seeded checkpoint of the published shapes,
times this engine and transformers on it, compares every stage, and writes one JSON and one table.

  tools/gpu_proof.py --out proof [--work /tmp/quire-proof] [--parts build,checkpoint,bench,times,stages,parity]
                     [--limit stages=300] [--device cuda] [--cmake=-DQUIRE_CUDA_CHIPS=90a]

Needs a C++ compiler, CMake and the CUDA toolkit; for times and stages also Python with torch, transformers >= 5.17,
safetensors, Pillow and numpy. Large files (the checkpoint, 6.8 GB, and stage tensors, 0.9 GB) go to --work and are used
again. A part that fails or passes its limit is reported, and what does not need it still runs. Exit code: 0 all parts
ran and held, 1 not.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAIL_CHARACTERS = 2000


def output(*command):
    """First-hand words of a program about itself; none where it is not there."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def chip_flags():
    """Kernels for the chip at hand alone: a build for all of them takes several times as long."""
    found = re.match(r"(\d+)\.(\d)", output("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"))
    if not found:
        return []
    chip = found.group(1) + found.group(2)
    return [f"-DQUIRE_CUDA_CHIPS={chip}{'a' if chip == '90' else ''}", "-DQUIRE_CUDA_PTX="]


def machine(commit):
    nvcc = re.search(r"release ([\d.]+)", output("nvcc", "--version"))
    return dict(
        gpu=output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        cuda=nvcc.group(1) if nvcc else "",
        compiler=output(os.environ.get("CXX", "c++"), "-dumpfullversion"),
        cmake=output("cmake", "--version").split("\n")[0],
        python=sys.version.split()[0],
        cpus=os.cpu_count(),
        commit=commit or output("git", "rev-parse", "HEAD"),
        changed_files=len(output("git", "status", "--porcelain", "--untracked-files=no").splitlines()),
        date=time.strftime("%Y-%m-%d"))


class Proof:
    LIMITS_S = dict(build=600, checkpoint=180, bench=180, times=150, stages=180, parity=120)

    def __init__(self, a):
        self.a = a
        self.build = os.path.join(a.work, "build")
        self.model = a.model or os.path.join(a.work, "model")
        self.stages = os.path.join(a.work, "stages")
        self.parts = {}
        os.makedirs(a.out, exist_ok=True)
        os.makedirs(a.work, exist_ok=True)
        self.log = open(os.path.join(a.out, "proof.log"), "w", encoding="utf-8")

    def program(self, name):
        return os.path.join(self.build, name)

    def file(self, name):
        return os.path.join(self.a.out, name)

    def result(self, part):
        return self.file(part + ".json")

    def commands(self, part):
        """What a part runs, one after the other."""
        device = ["--model", self.model, "--device", self.a.device]
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        python = [sys.executable, "-u"]
        tools = os.path.join(ROOT, "tools")
        return dict(
            build=[["cmake", "-S", ROOT, "-B", self.build, *generator, "-DCMAKE_BUILD_TYPE=Release",
                    "-DQUIRE_ENGINE_ONLY=ON", "-DQUIRE_CUDA=ON", *chip_flags(), *self.a.cmake],
                   ["cmake", "--build", self.build, "-j", str(os.cpu_count())]],
            checkpoint=[[self.program("quire-make-checkpoint"), "--arch", "ocr2", "--size", "full", "--seed", "1",
                         self.model]],
            bench=[[self.program("quire-device-bench"), *device, "--json", self.result("bench"), *self.a.bench]],
            times=[[*python, os.path.join(tools, "reference_times.py"), self.model, "--json", self.result("times")]],
            stages=[[*python, os.path.join(tools, "stage_reference.py"), self.model, self.stages]],
            parity=[[self.program("quire-stage-parity"), *device, "--reference", self.stages, "--json",
                     self.result("parity")]],
        )[part]

    def made(self, part):
        """Whether what this part makes is there, given or from an earlier run."""
        if part == "checkpoint" and self.a.model:
            return True
        marks = dict(checkpoint=os.path.join(self.model, "tokenizer.json"),
                     stages=os.path.join(self.stages, "reference.json"))
        return part in marks and os.path.exists(marks[part])

    def run(self, part):
        result = self.parts[part] = dict(ok=True, seconds=0.0)
        if self.made(part):
            result["note"] = "was there"
            return
        if os.path.exists(self.result(part)):
            os.remove(self.result(part))
        start = time.time()
        limit_s = self.a.limits.get(part, self.LIMITS_S[part])
        for command in self.commands(part):
            error = self.call(command, limit_s - (time.time() - start))
            if error:
                result.update(ok=False, error=error)
                break
        result["seconds"] = round(time.time() - start, 1)

    def call(self, command, limit_s):
        """Runs a command with its output in the log; its end, where it fails."""
        self.log.write("$ " + " ".join(command) + "\n")
        self.log.flush()
        begin = self.log.tell()
        try:
            child = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=subprocess.STDOUT,
                                     start_new_session=True)
        except OSError as error:
            return str(error)
        try:
            code = child.wait(max(1.0, limit_s))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code = "none: it ran past its limit"
        self.log.seek(0, os.SEEK_END)
        if code == 0:
            return ""
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            log.seek(begin)
            return f"exit code {code}: " + log.read()[-TAIL_CHARACTERS:].strip()

    def read(self, part):
        try:
            with open(self.result(part), encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            return None

    def report(self):
        return dict(machine=machine(self.a.commit), parts=self.parts, bench=self.read("bench"),
                    reference=self.read("times"), parity=self.read("parity"))


def cell(measurement, key, form="{:,.1f}"):
    return form.format(measurement[key]) if measurement and key in measurement else "-"


def speed_table(bench, reference):
    theirs = {m["name"]: m for m in (reference or {}).get("measurements", [])}
    ours = {m["name"]: m for m in (bench or {}).get("measurements", [])}
    lines = ["| what | this engine | floor | reached | transformers | times |", "|---|---|---|---|---|---|"]
    for name in [*ours, *(n for n in theirs if n not in ours)]:
        a, b = ours.get(name, {}), theirs.get(name, {})
        unit = a.get("unit", b.get("unit", ""))
        floor = f"{100 * a['rate'] / a['floor_rate']:.0f}%" if "rate" in a else "-"
        times = f"{a['rate'] / b['rate']:.1f}" if "rate" in a and "rate" in b else "-"
        error = (a.get("error") or b.get("error") or "").replace("\n", " ").replace("|", "/")[:120]
        lines.append(f"| {name}{': ' + error if error else ''} | {cell(a, 'rate')} {unit} ({cell(a, 'ms', '{:.3f}')} ms) | "
                     f"{cell(a, 'floor_rate')} | {floor} | {cell(b, 'rate')} | {times} |")
    for m in ours.values():
        if "details" in m:
            lines.append(f"\n{m['name']}: experts hit a layer and step {m['details']['experts_hit']:.1f}, "
                         f"expected {m['details']['experts_expected']:.1f}")
    return lines


def parity_table(parity):
    lines = [f"limit of the ratio {parity['limit']}: {'held' if parity['held'] else 'NOT HELD'}", "",
             "| stage | rows | ours | transformers bf16 | ratio | worst page | other experts: ours, bf16 |",
             "|---|---|---|---|---|---|---|"]
    for s in parity["stages"]:
        ratio, worst = (f"{v:.3f}" if v is not None else "inf" for v in (s["ratio"], s["worst_page_ratio"]))
        lines.append(f"| {s['name']}{'' if s['judged'] else ' (not judged)'} | {s['rows']} | {s['ours'] or 0:.2e} | "
                     f"{s['bf16']:.2e} | {ratio} | {worst} | {s['ours_other_experts']}, {s['bf16_other_experts']} |")
    return lines


def table(report):
    lines = ["# Proof at full size", "", ", ".join(f"{k} {v}" for k, v in report["machine"].items() if v != "")]
    lines += ["", "| part | seconds | |", "|---|---|---|"]
    for name, part in report["parts"].items():
        said = part.get("note", "") if part["ok"] else "FAILED: " + part["error"].splitlines()[0]
        lines.append(f"| {name} | {part['seconds']} | {said} |")
    bench = report["bench"]
    if bench:
        load, ceilings = bench["load"], bench["ceilings"]
        lines += ["", f"{bench['device']['name']}, {bench['device']['dtype']}; load "
                  f"{', '.join(f'{ms:.0f}' for ms in load['rounds_ms'])} ms for {load['file_bytes'] / 1e9:.2f} GB; floors "
                  f"from {ceilings['bytes_per_s'] / 1e12:.2f} TB/s and {ceilings['flops'] / 1e12:.1f} TFLOP/s "
                  f"({ceilings['from']})"]
    if bench or report["reference"]:
        lines += ["", *speed_table(bench, report["reference"])]
    if report["parity"]:
        lines += ["", *parity_table(report["parity"])]
    return "\n".join(lines) + "\n"


def pair(text):
    part, seconds = text.split("=")
    return part, float(seconds)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="proof", help="proof.json, proof.md, proof.log and what they are made of")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "quire-proof"))
    parser.add_argument("--model", help="a checkpoint that is there, in place of the seeded one")
    parser.add_argument("--parts", default=",".join(Proof.LIMITS_S))
    parser.add_argument("--limit", action="append", type=pair, default=[], metavar="PART=SECONDS")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cmake", type=shlex.split, default=[], metavar="ARGUMENTS", help="of the build")
    parser.add_argument("--bench", type=shlex.split, default=[], metavar="ARGUMENTS", help="of quire-device-bench")
    parser.add_argument("--commit", default="", help="where the tree has no .git")
    a = parser.parse_args()
    a.out, a.work = os.path.abspath(a.out), os.path.abspath(a.work)
    a.parts, a.limits = a.parts.split(","), dict(a.limit)
    unknown = set(a.parts) | set(a.limits)
    unknown -= set(Proof.LIMITS_S)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(Proof.LIMITS_S)}")
    return a


def main():
    proof = Proof(arguments())
    for part in proof.a.parts:
        proof.run(part)
        result = proof.parts[part]
        print(f"{part}: {'ok' if result['ok'] else result['error']} ({result['seconds']} s)", flush=True)
        report = proof.report()
        with open(proof.file("proof.json"), "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)
        with open(proof.file("proof.md"), "w", encoding="utf-8") as f:
            f.write(table(report))
    print(table(report))
    return 0 if all(part["ok"] for part in proof.parts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
