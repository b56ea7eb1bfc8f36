"""Draws layouts.svg: what each of four ranks holds, per layout. Usage: python3 layouts.py >layouts.svg"""

N, W, H, GAP = 4, 150, 11, 3  # ranks, width of a cell, height and distance of bars
LEFT, TOP, COL, ROW = 176, 92, 172, 78
KINDS = [("master", "weights, fp32"), ("work", "compute copies, bf16"), ("grad", "gradients, fp32"),
         ("state", "optimizer state, fp32"), ("act", "activations")]
# of every kind: "all", "piece" (a quarter), "slots" (room for what is in use, and a piece)
ROWS = [
    ("parallel.dp=4", "zero 0: replicas", ["all", "all", "all", "all", "samples"]),
    ("parallel.zero=1", "optimizer shared out", ["piece", "all", "all", "piece", "samples"]),
    ("parallel.zero=2", "and gradients", ["piece", "all", "slots", "piece", "samples"]),
    ("parallel.zero=3", "and weights", ["piece", "slots", "slots", "piece", "samples"]),
    ("parallel.tp=4", "heads and columns", ["part", "part", "part", "part", "tp"]),
    ("... parallel.sp=true", "and rows between", ["part", "part", "part", "part", "sp"]),
]
STYLE = """svg{background:#fbfaf7;font:12px system-ui,sans-serif}text{fill:#1f1b16}.t{font-size:17px;font-weight:600}
.b{font-weight:600}.s{fill:#5c544b}.e{fill:#ece7de}.master{fill:#4a7fb5}.work{fill:#7fb2d9}.grad{fill:#d98a3d}
.state{fill:#6a9f58}.act{fill:#a078b4}.slot{fill:none;stroke-width:1.5;stroke-dasharray:3 2}
.work.slot{fill:none;stroke:#4a8fc0}.grad.slot{fill:none;stroke:#c97a2d}
@media (prefers-color-scheme:dark){svg{background:#16130f}text{fill:#efe9df}.s{fill:#b5aca0}.e{fill:#2b2620}
.master{fill:#5b93cb}.work{fill:#86b9e0}.grad{fill:#e09a52}.state{fill:#7fb56d}.act{fill:#b48cc8}}"""


def rect(x, y, w, h, kind):
    print(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h}" rx="1.5"/>')


def text(x, y, words, kind=""):
    print(f'<text class="{kind}" x="{x}" y="{y}">{words}</text>')


def bar(x, y, rank, kind, how):
    rect(x, y, W, H, "e")
    q = W / N
    if how == "all":
        rect(x, y, W, H, kind)
    elif how in ("piece", "part"):
        rect(x + rank * q, y, q, H, kind)
    elif how == "slots":  # two layers and the outer units, of whatever is in use
        rect(x + rank * q, y, q, H, kind)
        room = W * 0.3
        rect(min(x + 0.75, x + W) + (0 if rank >= 2 else W - room - 1.5), y + 0.75, room, H - 1.5,
             kind + " slot")
    elif how == "samples":
        rect(x, y, W, H, kind)
    elif how == "tp":  # what lies between blocks is whole on every rank
        rect(x, y, W * 10 / 34, H, kind)
        rect(x + W * 10 / 34 + rank * W * 24 / 34 / N, y, W * 24 / 34 / N, H, kind)
    else:
        rect(x + rank * q, y, q, H, kind)


def main():
    width, height = LEFT + COL * len(KINDS) + 4, TOP + ROW * len(ROWS) + 52
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">')
    print("<title>What each of four ranks holds</title>")
    print(f"<style>{STYLE}</style>")
    text(12, 28, "What each of four ranks holds", "t")
    text(12, 48, "A bar is a rank, its grey length what one rank alone would hold. Filled: kept there. "
         "Dashed: slots for the units in use.", "s")
    for k, (_, name) in enumerate(KINDS):
        text(LEFT + k * COL, TOP - 14, name, "b")
    for i, (key, why, cells) in enumerate(ROWS):
        y = TOP + i * ROW
        text(12, y + 22, key, "b")
        text(12, y + 39, why, "s")
        for k, (kind, _) in enumerate(KINDS):
            for r in range(N):
                bar(LEFT + k * COL, y + r * (H + GAP), r, kind, cells[k])
    y = TOP + ROW * len(ROWS) + 10
    text(12, y, "Activations of data-parallel ranks are whole, each of its own samples; those of "
         "tensor-parallel ranks are of the same samples.", "s")
    text(12, y + 18, "Norms and biases are whole everywhere. fp32 programs have no compute copies; "
         "their weights are whole under ZeRO-1 and -2, which read them.", "s")
    print("</svg>")


main()
