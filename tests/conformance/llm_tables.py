#!/usr/bin/env python3
"""llm_tables.py: the tables that attn prints for domain llm are the published ones, cell by cell.

usage: llm_tables.py PATH-OF-ATTN llm-backends.json

Reads `attn list --domain llm --format markdown` back and compares every cell of the three tables, the lists of
priorities and the notes with the published data; prints a line per difference and closes with "N cells agree, M differ".
"""
import json
import re
import subprocess
import sys

TYPES = {"Decoder": "decoder", "Encoder": "encoder", "Encoder Only": "encoder_only", "Enc-Dec": "encoder_decoder"}
COLUMNS = {"Version": "variant", "Dtypes": "dtypes", "KV Dtypes": "kv_dtypes", "Block Sizes": "block_sizes",
           "Head Sizes": "head_sizes", "Sink": "sink", "Sparse": "sparse", "MM Prefix": "mm_prefix", "DCP": "dcp",
           "Attention Types": "attn_types", "Compute Cap.": "compute_cap", "Notes": "notes", "Kernel": "kernel",
           "Enable": "enable", "Disable": "disable", "Constraint": "constraint"}
agree = differ = 0


def compare(where, got, want):
    global agree, differ
    if got == want:
        agree += 1
    else:
        differ += 1
        print("%s is %r, published is %r" % (where, got, want))


def sections(text):
    """Heading -> rows, each a dict from heading of the column to cell."""
    found, name, head = {}, None, None
    for line in text.splitlines():
        if line.startswith("## "):
            name, head = line[3:], None
            found[name] = []
        elif line.startswith("|"):
            cells = [c.strip().replace("\\|", "|").replace("`", "") for c in line.strip().strip("|").split("|")]
            if head is None:
                head = cells
            elif not set(line) <= set("|-: "):
                found[name].append(dict(zip(head, cells)))
        elif line.startswith("- ") and name:
            found[name].append(tuple(line[2:].split(": ", 1)))
    return found


def numbers(text):
    return [int(n) for n in text.split(", ")]


def value_of(column, cell):
    """A printed cell as the published data writes it."""
    if column in ("Sink", "Sparse", "MM Prefix", "DCP"):
        return {"yes": True, "-": False}[cell]
    if column in ("Version", "Constraint"):
        return None if cell == "-" else cell
    if column == "Notes":
        return [] if cell == "-" else cell.split(", ")
    if column in ("Dtypes", "KV Dtypes"):
        return cell.split(", ")
    if column == "Head Sizes":
        return cell if cell == "any" else numbers(cell)
    if column == "Block Sizes":
        multiple = re.match(r"multiple of (\d+)$", cell)
        return {"multiple_of": int(multiple.group(1))} if multiple else cell if cell == "any" else numbers(cell)
    if column == "Attention Types":
        return list(TYPES.values()) if cell == "All" else [TYPES[t] for t in cell.split(", ")]
    return cell


def published(row, column):
    want = row[COLUMNS[column]]
    return want["text"] if isinstance(want, dict) and "text" in want else want


def compare_table(title, rows, wanted):
    compare("number of rows of " + title, len(rows), len(wanted))
    for row, want in zip(rows, wanted):
        where = "%s: %s %s" % (title, want["name"], want["variant"] or "")
        compare(where + " name", row["Backend"], want["name"])
        for column in row:
            if column != "Backend":
                compare("%s %s" % (where, column), value_of(column, row[column]), published(want, column))
        missing = {c for c in want if c in COLUMNS.values()} - {COLUMNS[c] for c in row if c != "Backend"}
        compare(where + " columns that are missing", missing - {"variant"}, set())


def compare_priorities(rows, data):
    lists = {}
    for row in rows:
        lists.setdefault((row["Platform"], row["Queries"]), []).append(row["Backend"])
    wanted, outside = data["priorities"], data["priorities"]["outside_table"]
    for kind, title in (("standard", "standard"), ("mla", "MLA")):
        compare("priorities %s, SM 10.x" % title, lists.get(("cuda", title + ", SM 10.x")), wanted[kind]["sm10x"])
        compare("priorities %s, other" % title, lists.get(("cuda", title + ", other")), wanted[kind]["other"])
    rocm = outside["rocm"]
    compare("rocm sparse", lists.get(("rocm", "sparse")), rocm["sparse"])
    compare("rocm MLA", lists.get(("rocm", "MLA")), rocm["mla_aiter_on"])
    compare("rocm standard", lists.get(("rocm", "standard")), [name.split(" ")[0] for name in rocm["standard"]])
    conditions = {r["Backend"]: r["When"] for r in rows if r["Platform"] == "rocm" and r["Queries"] == "standard"}
    for entry in rocm["standard"]:
        name, _, condition = entry.partition(" ")
        compare("rocm condition of " + name, conditions.get(name), condition.strip("()") or "-")
    compare("vision encoders", lists.get(("cuda", "vision encoder, SM 8.0 and up")), outside["vit_cuda_sm80_and_up"])
    compare("vision encoders below 8.0", lists.get(("cuda", "vision encoder, below SM 8.0")),
            outside["vit_cuda_below_sm80"])
    compare("cpu", lists.get(("cpu", "all")), outside["cpu"])
    compare("xpu sparse", lists.get(("xpu", "sparse")), outside["xpu"]["sparse"])
    compare("xpu MLA", lists.get(("xpu", "MLA")), outside["xpu"]["mla"])
    compare("xpu standard", lists.get(("xpu", "standard")), outside["xpu"]["standard_fp32"] + outside["xpu"]["standard"])


def compare_orders(attn, data):
    """The footnote of the sparse pair, asked of the program for each of its cases."""
    cases = [("kv_cache_dtype=fp8,num_heads=128", 0), ("kv_cache_dtype=auto,num_heads=16", 1),
             ("kv_cache_dtype=auto,num_heads=17", 2), ("kv_cache_dtype=auto", 2)]
    for question, row in cases:
        text = subprocess.run([attn, "explain", "--domain", "llm", "--facts", "preset:b200", "--json", "--query",
                               "use_mla,use_sparse,head_size=576,dtype=bf16," + question],
                              capture_output=True, text=True).stdout
        names = [c["backend"] for c in json.loads(text)["roles"][0]["candidates"]]
        pair = [n for n in names if n in ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE")]
        compare("sparse pair of " + question, pair, data["priorities"]["mla_sparse_order_sm10x"][row]["order"])


def main():
    attn, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    text = subprocess.run([attn, "list", "--domain", "llm", "--format", "markdown"], capture_output=True, text=True,
                          check=True).stdout
    found = sections(text)
    compare_table("Standard attention", found["Standard attention"], data["standard"])
    compare_table("MLA decode", found["MLA decode"], data["mla_decode"])
    compare_table("MLA prefill", found["MLA prefill"], data["mla_prefill"])
    compare_priorities(found["Priorities"], data)
    compare_orders(attn, data)
    compare("names", [row["Name"] for row in found["Names"]], data["enums"]["backend_names"])
    notes = dict(found["Notes"])
    compare("notes", sorted(notes), sorted(data["footnotes"]))
    for key in ("fn-trtllm", "fn-fa-version", "fn-ragged-default"):
        compare("note " + key, notes.get(key), data["footnotes"][key])
    for title, key in (("Standard attention", "standard"), ("MLA decode", "mla_decode"), ("MLA prefill", "mla_prefill")):
        compare("count of " + title, len(found[title]), data["counts"][key])
    print("%d cells agree, %d differ" % (agree, differ))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
