#!/usr/bin/env python3
"""binary.py LIBRARY: what no result shows and no compiler warns of, read from the machine code of an optimised x86-64 build.

- The inner loops of the packed products keep their sums in registers: a spilled one costs a third of the speed.
- Packing and attending fetch rows ahead. gcc takes a function that only fetches for one without effect and drops its calls.

Exit status 77 (skipped) without objdump, on other processors and for builds that are not optimised.
"""
import re
import shutil
import subprocess
import sys

PRODUCTS = ("scores", "values")
FETCHING = {"pack_keys": 3, "pack_values": 3, "flash_do_tile": 1}  # at least so many functions of this name
MULTIPLY = re.compile(r"\bv(fn?madd|fmadd|dpbf16)\w*\s")
SPILL = re.compile(r"\bvmov\w+\s+%[xyz]mm\d+,\S*\(%r[sb]p")
JUMP = re.compile(r"\bj\w+\s+([0-9a-f]+)\s")


def functions(library):
    """(name, [(address, text)]) of every function; names repeat, one for each kernel set."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True,
                          check=True).stdout
    for part in re.split(r"\n(?=[0-9a-f]+ <[^>]+>:\n)", text):
        head = re.match(r"[0-9a-f]+ <([^>]+)>:\n", part)
        if head:
            lines = re.findall(r"^ +([0-9a-f]+):\s+(.*)$", part, re.M)
            yield re.sub(r"\.\w+$", "", head.group(1)), [(int(at, 16), line) for at, line in lines]


def inner_loops(code):
    """The instructions of every loop that holds no other loop."""
    loops = []
    for at, line in code:
        jump = JUMP.search(line + " ")
        if jump and code[0][0] <= int(jump.group(1), 16) <= at:
            loops.append((int(jump.group(1), 16), at))
    for first, last in loops:
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in loops):
            yield [line for at, line in code if first <= at <= last]


def main():
    library = sys.argv[1]
    if not shutil.which("objdump"):
        print("objdump is not installed")
        return 77
    seen = list(functions(library))
    failures, products = [], 0
    for name, code in seen:
        for loop in inner_loops(code) if name in PRODUCTS else ():
            multiplies = sum(bool(MULTIPLY.search(line)) for line in loop)
            products += multiplies >= 12
            if multiplies >= 4 and any(SPILL.search(line) for line in loop):
                failures.append("a loop of %s with %d products stores vectors to the stack" % (name, multiplies))
    if products == 0:
        print("no loop of products: not x86-64, or not optimised")
        return 77
    for name, least in FETCHING.items():
        fetching = sum(any("prefetch" in line for _, line in code) for found, code in seen if found == name)
        if fetching < least:
            failures.append("%d functions %s fetch rows ahead, expected %d" % (fetching, name, least))
    print("\n".join(failures) if failures else "%d loops of products, no sum is spilled; rows are fetched" % products)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
