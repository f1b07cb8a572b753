"""``cosen reproduce list``: the rows of the paper's tables, and what each needs."""

from typing import TYPE_CHECKING, Any

from cosen.cli.plain_table import plain_table

if TYPE_CHECKING:
    from cosen.paper.presets import Preset
    from cosen.paper.reproduce import Entry

TABLE_WORDS = {
    "DILexp": "skin lesions; HAM10000 in place of Dermofit",
    "MLCexp": "corals; RSMAS in place of Moorea",
    "MNISTexp": "MNIST, 10 or 25 % of the odd or even digits",
    "CIFARexp": "CIFAR-100, 10 or 25 % of the odd or even classes",
    "Caltechexp": "Caltech-101, 10 % of the odd or even classes",
    "MIT67exp": "MIT-67, 10 % of the odd or even classes",
    "gnf": "F-measure and G-mean on the most imbalanced protocols",
    "comp_imbalanced": "against sampling, weighted SVM and forest, SOSR",
    "comp_fixedcost": "fixed against learned costs",
}
"""The paper's tables and what they are of."""

ROW_WIDTH, PAPER_WIDTH = 30, 22
"""Of columns of the list, which is to be read at 80."""


def print_list(found: "dict[str, list[Entry]]", preset: "Preset") -> None:
    from rich.console import Console
    from rich.text import Text

    from cosen.paper.presets import TIMES

    console = Console(highlight=False)
    for name, entries in found.items():
        console.print(Text(f"{name}: {TABLE_WORDS[name]}"))
        table = plain_table("row", "paper", "needs", "time", right_from=3)
        table.columns[0].width, table.columns[1].width = ROW_WIDTH, PAPER_WIDTH
        for entry in entries:
            table.add_row(
                Text(entry.words), _paper(entry), _needs(entry, preset), _time(entry, preset)
            )
        console.print(table)
        console.print()
    timing = timing_row(preset)
    console.print(Text(f"timing: {timing['row']}"))
    console.print(
        Text(
            f"{timing['numbers']['with costs']} s and "
            f"{timing['numbers']['without costs']} s in the paper; needs "
            f"{timing['needs']}; time {_words(timing['minutes'])}"
        )
    )
    console.print()
    features = ", ".join(f"{name} {t.features:.0f}" for name, t in TIMES.items() if t.features)
    time = (
        "Time: about, on 2 cores, of all methods of the row with 3 seeds; rows on the same "
        "protocol share their runs. VGG-16's features are computed once for a dataset, which "
        f"takes more minutes: {features}."
        if preset.measured
        else "Time: not measured; this preset is for a GPU."
    )
    console.print(
        Text(
            f"Preset {preset.name}: {preset.description}. {time} Accuracies are in per cent. Run a "
            "row with cosen reproduce TABLE --row ROW, where a part of its words will do. Cited "
            "numbers are those that the paper takes from other papers; brackets: the paper's "
            "number is of other data, which cannot be had freely."
        )
    )


def _paper(entry: "Entry") -> str:
    """The paper's numbers, a method and its number always on one line."""
    from cosen.paper.side_by_side import paper_text

    lines: list[str] = []
    for method, number in entry.row.numbers.items():
        called = "CoSen" if method == "cosen" else method  # our default of that name is another
        words = f"{called} {paper_text(entry, number)}"
        if method in entry.row.spread:
            words += f" ± {entry.row.spread[method]:.1f}"
        if lines and len(lines[-1]) + len(words) + 2 <= PAPER_WIDTH:
            lines[-1] += f", {words}"
        else:
            lines.append(words)
    return "\n".join(lines)


def _needs(entry: "Entry", preset: "Preset") -> str:
    return "cited, not run" if entry.protocol is None else preset.needs(entry.protocol)


def _minutes(entry: "Entry", preset: "Preset") -> float | None:
    from cosen.paper.presets import minutes_of
    from cosen.paper.reproduce import SEEDS

    if entry.protocol is None:
        return None
    return minutes_of(preset, entry.protocol, runs=len(entry.methods) * SEEDS)


def _time(entry: "Entry", preset: "Preset") -> str:
    return "-" if entry.protocol is None else _words(_minutes(entry, preset))


def _words(minutes: float | None) -> str:
    if minutes is None:
        return "GPU"
    if minutes < 1:
        return "< 1 min"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def entry_json(entry: "Entry", preset: "Preset") -> dict[str, Any]:
    return {
        "table": entry.row.table,
        "row": entry.words,
        "protocol": entry.protocol.name if entry.protocol else None,
        "metric": entry.row.metric,
        "numbers": dict(entry.row.numbers),
        "spread": dict(entry.row.spread),
        "is_stand_in": entry.is_stand_in,
        "methods": list(entry.methods),
        "needs": preset.needs(entry.protocol) if entry.protocol else None,
        "minutes": _minutes(entry, preset),
    }


def timing_row(preset: "Preset") -> dict[str, Any]:
    from cosen.paper.presets import TIMING_MINUTES
    from cosen.paper.protocols import TIMING, protocol

    config = preset.timing_config()
    needs = protocol(preset.timing).dataset + (", VGG-16" if config.weights else "")
    return {
        "table": "timing",
        "row": "one epoch with learned costs, and one without",
        "protocol": preset.timing,
        "numbers": {"with costs": TIMING.with_costs, "without costs": TIMING.without_costs},
        "needs": needs,
        "minutes": TIMING_MINUTES if preset.measured else None,
    }
