"""Model cards of finished runs: facts, front matter, and names that Markdown would misread."""

import re

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cosen.data.batches import IMAGENET
from cosen.data.decoding import Preprocess
from cosen.errors import RunError, escape_controls
from cosen.inference.model_card import LISTED_UP_TO, markdown, model_card
from cosen.networks.network import Outputs
from cosen.training.records import HeadRecord, ImageNames, ModelInfo
from report.small_runs import COSTLY, NAMES, TRAIN, cost_step, write_run


def info_of(names=NAMES, train=TRAIN, **values):
    facts = {
        "network": "small-cnn",
        "options": {},
        "class_names": names,
        "class_counts": torch.tensor(train),
        "preprocess": Preprocess(8, 8, 1),
        "normalise": IMAGENET,
        "temperature": 2.0,
        "offsets": tuple(0.1 * label for label in range(len(names))),
    }
    return ModelInfo(**(facts | values))


def card_of(folder, *, format="hub", name="lesions", note="", info=None, **run):
    names, train = run.get("names", NAMES), run.get("train", TRAIN)
    write_run(folder, run.pop("predicted", COSTLY), **run)
    return model_card(folder, info or info_of(names, train), name, format, note)


def tables(text):
    """The cells of each table, as a browser shows them."""
    found, tokens = [], MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    for place, token in enumerate(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("th_open", "td_open"):
            inline = tokens[place + 1]
            assert {child.type for child in inline.children} <= {
                "text",
                "text_special",
                "code_inline",
            }
            found[-1][-1].append("".join(child.content for child in inline.children))
    return found


def body(text):
    return text.split("\n---\n", 1)[1]


def test_the_facts_of_a_run(tmp_path):
    text = card_of(tmp_path / "run", steps=[cost_step(1, strengths={"tau": 1.5, "margin": 0.25})])
    data, overall, classes, calibration, produced = tables(body(text))
    assert ["data", "photos"] in data
    assert ["images", "155 for training, 8 for validation, 8 for test (--split auto)"] in data
    assert ["mean class recall", "75.0 %", "75.0 %"] in overall
    assert "The 95 % interval of the first accuracy is 34.9 % to 96.8 %.\n" in text
    assert classes[1:] == [
        ["cat", "100", "4", "4", "75.0 %", "19.4 % to 99.4 %", "75.0 %"],
        ["dog", "50", "2", "2", "100.0 %", "15.8 % to 100.0 %", "66.7 %"],
        ["elk", "5", "2", "2", "50.0 %", "1.3 % to 98.7 %", "100.0 %"],
    ]
    assert calibration[2][0] == "log loss"
    assert ["data fingerprint", "split"] in produced
    assert "$ cosen train photos/\n" in text
    assert "(strength 1.50 in the last epoch), and must win by a margin (0.25)" in text
    assert "- Lowest recall: elk (50.0 %), cat (75.0 %).\n" in text
    assert "cat predicted as dog (1 image), elk predicted as cat (1 image).\n" in text
    assert "uncertain: cat, dog, elk.\n" in text
    assert text.count("**To fill in") == 4


def test_the_front_matter_is_that_of_the_hub(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(card_of(tmp_path / "run"))
    card = ModelCard.load(path)
    assert card.data.pipeline_tag == "image-classification"
    assert (card.data.library_name, card.data.model_name) == ("timm", "lesions")
    assert (card.data.license, card.data.base_model) == (None, None)
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results == {"accuracy": 0.75, "recall": 0.75, "f1": pytest.approx(0.7389, abs=1e-4)}
    assert {result.dataset_name for result in card.data.eval_results} == {"photos"}
    assert ModelCard(card.content).data.to_dict() == card.data.to_dict()


@pytest.mark.parametrize(
    ("format", "note", "library", "code"),
    [
        ("hub", "", "timm", "timm.create_model"),
        ("hub", "Only cosen can load it.", "cosen", "$ cosen predict lesions photo.jpg"),
        ("onnx", "", "onnx", "onnxruntime.InferenceSession"),
        ("torchscript", "", "pytorch", "torch.jit.load"),
    ],
)
def test_each_format_says_how_to_use_it(tmp_path, format, note, library, code):
    text = card_of(tmp_path / "run", format=format, note=note)
    assert ModelCard(text).data.library_name == library
    assert code in text
    assert ("timm" in text) == (library == "timm")
    assert note in text
    assert "\n\n\n" not in text


def test_the_program_for_other_class_shares(tmp_path):
    info = info_of()
    text = card_of(tmp_path / "run", info=info)
    (program,) = (
        code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "shares" in code
    )
    logits, shares = (
        torch.tensor([[2.0, 1.0, -1.0], [0.0, 0.5, 1.0]]),
        torch.tensor([0.2, 0.5, 0.3]),
    )
    plain = info.model_dump(mode="json")
    known = {"np": np, "info": plain, "logits": logits.numpy(), "shares": shares.numpy()}
    exec(program, known)
    expected = info.calibration.probabilities(logits, shares)
    np.testing.assert_allclose(known["probabilities"], expected.numpy(), rtol=1e-6)


def test_what_the_outputs_assume(tmp_path):
    """With offsets log h the softmax is the posterior under equal shares."""
    shares = torch.tensor(TRAIN) / sum(TRAIN)
    text = card_of(tmp_path / "run", info=info_of(offsets=tuple(shares.log().tolist())))
    assert "if their shares are from 33.3 % (" in text
    assert "In training they were from 3.2 % (elk) to 64.5 % (cat)." in text


def test_many_classes_have_a_short_card(tmp_path):
    classes = 1001
    target = np.arange(classes)
    predicted = np.where(target % 100 == 7, (target + 1) % classes, target)
    names, train = tuple(f"class {label}" for label in range(classes)), range(3, classes + 3)
    text = card_of(
        tmp_path / "run",
        predicted=predicted.tolist(),
        target=target.tolist(),
        names=names,
        train=tuple(train),
        pictures=False,
    )
    rows = tables(body(text))[2][1:]
    assert 10 <= len(rows) <= 20 < LISTED_UP_TO
    assert [row[0] for row in rows[:3]] == ["class 0", "class 1", "class 2"]
    assert ["class 107", "110", "1", "1", "0.0 %", "0.0 % to 97.5 %", "0.0 %"] in rows
    assert "The other classes are left out." in text
    assert "class 0, class 1, class 2, " in text
    assert "class 9 and 991 more" in text
    assert len(text) < 10_000


ODD = [
    "a|b",
    "*x*",
    "_x_",
    "<b>",
    "a\nb",
    "`",
    "[x](y)",
    "\\",
    "~~x~~",
    "&amp;",
    "# x",
    "$x$",
    "é 😀",
    "| | |",
]


def test_odd_names_stay_in_their_cells(tmp_path):
    names = (*ODD, "x" * 200)
    text = card_of(
        tmp_path / "run",
        predicted=[1, *range(1, len(names))],
        target=range(len(names)),
        names=names,
        train=[3] * len(names),
        data="/home/me/odd|data\n<b>",
        command=("cosen", "train", "/home/me/odd|data\n<b>"),
    )
    rows = tables(body(text))[2][1:]
    assert [row[0] for row in rows] == [escape_controls(name) for name in names]
    assert {len(row) for row in rows} == {7}
    assert "/home/me" not in text
    assert ModelCard(text).data.eval_results[0].dataset_name == "odd|data\\n<b>"


@given(st.text(min_size=1, max_size=30))
def test_any_text_is_one_cell(name):
    text = f"| a | b |\n|---|---|\n| x{markdown(name)}x | y |\n"
    ((_, (found, last)),) = tables(text)
    assert (found, last) == (f"x{escape_controls(name)}x", "y")
    text.encode()


def test_a_run_without_validation_images_or_costs(tmp_path):
    run = write_run(tmp_path / "run", COSTLY, method="my_module:Mine", command=("notebook",))
    test = run.predictions()["test"]
    none = Outputs(test.logits[:0], test.features[:0], test.target[:0])
    names = ImageNames(val=(), test=run.image_names().test)
    run.write_predictions({"val": none, "test": test}, names)
    text = model_card(run.path, info_of(), "lesions", "hub")
    assert "The method is my_module:Mine (a custom method)." in text
    assert "The run was started by a Python program." in text
    assert "strength" not in text
    assert "a person checks" not in text


def test_a_pretrained_network_names_its_base_model(tmp_path):
    run = write_run(tmp_path / "run", COSTLY)
    record = run.record()
    network = "resnet18.a1_in1k"
    record.changed(data=record.prepared.model_copy(update={"network": network})).write(run.path)
    card = ModelCard(model_card(run.path, info_of(), "lesions", "hub"))
    assert card.data.base_model == f"timm/{network}"
    assert "The network is resnet18.a1_in1k (a1_in1k)." in card.content


@pytest.mark.parametrize(("weighting", "text"), [(0.0, "Each class has a cost"), (1.0, "a weight")])
def test_offsets_of_pretrained_features_are_named(tmp_path, weighting, text):
    run = write_run(
        tmp_path / "run", COSTLY, steps=[cost_step(1, strengths={"tau": 1.0, "margin": 0.25})]
    )
    head = HeadRecord(
        output="linear",
        weight_decay=0.01,
        errors={},
        seconds=1.0,
        weighting=weighting,
        offsets=(0.1, 0.2, -0.3),
    )
    run.record().changed(head=head).write(run.path)
    card = model_card(run.path, info_of(), "lesions", "hub")
    assert text in card
    assert "Offsets of the classes were fitted to training images" in card
    assert "strength" not in card
    run.record().changed(head=head.model_copy(update={"tau": 0.9})).write(run.path)
    card = model_card(run.path, info_of(), "lesions", "hub")
    assert "Offsets of the classes and the strength of class frequencies (0.90) were fitted" in card


def test_private_folders_are_not_published(tmp_path):
    options = {"misclassification_costs": "/home/me/secret/costs.csv"}
    text = card_of(
        tmp_path / "run",
        method="cosen-paper",
        options=options,
        command=(
            *("cosen", "compare", "photos/", "--cluster", "ray://10.1.2.3:1", "--methods"),
            "cosen-paper(misclassification_costs=/home/me/secret/costs.csv),baseline",
        ),
    )
    assert "secret" not in text
    assert "10.1.2.3" not in text
    assert "cosen-paper (misclassification\\_costs=costs.csv)" in text.replace("n_c", "n\\_c")


def test_files_of_different_runs(tmp_path):
    with pytest.raises(RunError, match="is damaged: its files have different numbers of classes"):
        card_of(tmp_path / "run", info=info_of(NAMES[:2], TRAIN[:2]))
