"""ModelCheckpoint and EarlyStopping in real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lumen
from lumen.errors import ConfigError
from lumen.shell import checkpoint_io
from lumen_tests.models import Classifier, digest, loader, quiet


class Scored(Classifier):
    """Logs scores that are known beforehand, and remembers the weights at each."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__()
        self.scores = scores
        self.weights: list[str] = []

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.log("score", self.scores[len(self.weights)])
            self.weights.append(digest(self))


def folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def fit(root: Path, scores: list[float], *callbacks: Any, **options: Any) -> tuple[Any, Scored]:
    module = Scored(scores)
    settings = {"max_epochs": len(scores), "num_sanity_val_steps": 0} | options
    trainer = quiet(root, callbacks=list(callbacks), **settings)
    trainer.fit(module, loader(8), loader(4), ckpt_path=options.get("ckpt_path"))
    return trainer, module


def test_the_best_two_and_the_last_stay_and_hold_the_weights_that_were_scored(tmp_path: Path) -> None:
    best = lumen.ModelCheckpoint(tmp_path / "c", "{epoch}-{score:.1f}", monitor="score", mode="max", save_top_k=2)
    _, module = fit(tmp_path, [0.1, 0.9, float("nan"), 0.5, 0.2], best)
    assert folders(tmp_path / "c") == ["epoch=2-score=0.9", "epoch=4-score=0.5", "last"]
    assert Path(best.best_model_path).name == "epoch=2-score=0.9"
    assert best.best_model_score == 0.9
    for name, index in (("epoch=2-score=0.9", 1), ("epoch=4-score=0.5", 3), ("last", 4)):
        other = Classifier()
        quiet(tmp_path).validate(other, loader(4), ckpt_path=tmp_path / "c" / name)
        assert digest(other) == module.weights[index]


def test_the_history_survives_a_resume_and_a_moved_folder(tmp_path: Path) -> None:
    first = lumen.ModelCheckpoint(tmp_path / "c", monitor="score", mode="max")
    fit(tmp_path, [0.9, 0.3], first)
    (tmp_path / "c").rename(tmp_path / "moved")
    second = lumen.ModelCheckpoint(tmp_path / "moved", monitor="score", mode="max")
    module = Scored([0.5, 0.6])
    trainer = quiet(tmp_path, callbacks=[second], max_epochs=4, num_sanity_val_steps=0)
    trainer.fit(module, loader(8), loader(4), ckpt_path=tmp_path / "moved" / "last")
    assert second.best_model_score == 0.9
    assert folders(tmp_path / "moved") == ["epoch=1-step=2-score=0.9000", "last"]


def test_by_default_the_last_state_is_kept_and_found_again(tmp_path: Path) -> None:
    trainer, _ = fit(tmp_path, [0.1, 0.2])
    path = Path(trainer.checkpoint_callback.best_model_path)
    assert path == Path(str(trainer.log_dir)) / "checkpoints" / "last"
    assert folders(path.parent) == ["last"]
    assert checkpoint_io.read(path).manifest["step"] == 4


def test_two_callbacks_keep_to_their_own_folders(tmp_path: Path) -> None:
    one = lumen.ModelCheckpoint(monitor="score", mode="max")
    two = lumen.ModelCheckpoint(monitor="score", mode="min")
    fit(tmp_path, [0.1, 0.9, 0.5], one, two)
    assert (one.best_model_score, two.best_model_score) == (0.9, 0.1)
    assert Path(one.best_model_path).parent != Path(two.best_model_path).parent
    same = [lumen.ModelCheckpoint(tmp_path / "x", monitor="score", mode=mode) for mode in ("min", "max")]
    with pytest.raises(ConfigError, match="a folder of its own"):
        fit(tmp_path, [0.1], *same)
    twins = [lumen.ModelCheckpoint(monitor="score"), lumen.ModelCheckpoint(monitor="score")]
    trainer, _ = fit(tmp_path / "twins", [0.3, 0.2], *twins)
    assert [twin.best_model_score for twin in twins] == [0.2, 0.2]
    assert len(checkpoint_io.read(twins[0].last_model_path).sections["callbacks"]) == 2
    assert trainer.current_epoch == 2


def test_every_n_steps_and_a_stop_between_them(tmp_path: Path) -> None:
    every = lumen.ModelCheckpoint(tmp_path / "c", "{step}", every_n_train_steps=2, save_top_k=-1)
    trainer = quiet(tmp_path, callbacks=[every], max_steps=5)
    trainer.fit(Classifier(), loader(12))
    assert folders(tmp_path / "c") == ["last", "step=2", "step=4"]
    assert checkpoint_io.read(tmp_path / "c" / "last").manifest["step"] == 5


def test_every_n_epochs_with_accumulation_saves_between_windows_only(tmp_path: Path) -> None:
    every = lumen.ModelCheckpoint(tmp_path / "c", "{epoch}", every_n_epochs=2, save_top_k=-1, save_last=False)
    trainer = quiet(tmp_path, callbacks=[every], max_epochs=4, accumulate_grad_batches=2)
    trainer.fit(Classifier(), loader(12))
    assert folders(tmp_path / "c") == ["epoch=2", "epoch=4"]
    for name in folders(tmp_path / "c"):
        assert (
            checkpoint_io.read(tmp_path / "c" / name).sections["state"]["fields"]["progress"]["fields"]["window"] == 0
        )


def test_a_score_of_older_weights_saves_nothing(tmp_path: Path) -> None:
    """Steps between validations have no score of their own."""
    every = lumen.ModelCheckpoint(
        tmp_path / "c", "{step}", monitor="val_loss", every_n_train_steps=1, save_last=False, save_top_k=-1
    )
    trainer = quiet(tmp_path, callbacks=[every], max_epochs=2)
    trainer.fit(Classifier(), loader(12), loader(4))
    assert folders(tmp_path / "c") == ["step=3", "step=6"]


def test_saving_by_hand_inside_a_window_says_what_to_do(tmp_path: Path) -> None:
    class Saving(lumen.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.save_checkpoint(tmp_path / "mine")

    with pytest.raises(lumen.CheckpointError, match="request_checkpoint"):
        quiet(tmp_path, callbacks=[Saving()], accumulate_grad_batches=2, max_epochs=1).fit(Classifier(), loader(8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filename": "{epoch"}, "filename"),
        ({"filename": "last"}, "filename: got 'last'"),
        ({"filename": "{step:x.y}"}, "filename"),
        ({"save_top_k": -2}, "save_top_k: got -2"),
        ({"every_n_epochs": 0}, "every_n_epochs: got 0"),
        ({"mode": "best"}, "mode: got 'best'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lumen.ModelCheckpoint(**arguments)


def test_a_missing_value_in_a_name_is_an_error_not_a_zero(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'val_accc'.*Did you mean 'val_acc'"):
        fit(tmp_path, [0.1], lumen.ModelCheckpoint(filename="{val_accc:.2f}"))


def test_early_stopping_goes_on_waiting_after_a_resume(tmp_path: Path) -> None:
    scores = [0.5, 0.4, 0.4, 0.4, 0.4, 0.4]
    whole = lumen.EarlyStopping("score", mode="max", patience=4)
    trainer, _ = fit(tmp_path, scores, whole)
    assert (trainer.current_epoch, whole.wait_count, whole.stopped_epoch) == (5, 4, 4)
    assert "did not improve on 0.5 for 4 validations" in whole.stopping_reason
    fit(tmp_path / "b", scores[:2], lumen.EarlyStopping("score", mode="max", patience=4))
    rest = lumen.EarlyStopping("score", mode="max", patience=4)
    module = Scored(scores[2:])
    resumed = quiet(tmp_path / "b", callbacks=[rest], max_epochs=6, num_sanity_val_steps=0)
    resumed.fit(module, loader(8), loader(4), ckpt_path="last")
    assert (resumed.current_epoch, rest.wait_count) == (5, 4)


def test_a_name_that_does_not_change_keeps_the_best_all_the_same(tmp_path: Path) -> None:
    best = lumen.ModelCheckpoint(tmp_path / "c", "best", monitor="score", mode="max")
    _, module = fit(tmp_path, [0.1, 0.9, 0.5, 0.95, 0.4], best)
    assert (best.best_model_score, Path(best.best_model_path).name) == (0.95, "best")
    assert folders(tmp_path / "c") == ["best", "last"]
    other = Classifier()
    quiet(tmp_path).validate(other, loader(4), ckpt_path=best.best_model_path)
    assert digest(other) == module.weights[3]
    every = lumen.ModelCheckpoint(tmp_path / "d", "m", monitor="score", mode="max", save_top_k=-1, save_last=False)
    fit(tmp_path, [0.1, 0.9, 0.5], every)
    assert folders(tmp_path / "d") == ["m", "m-v1", "m-v2"]
    assert list(every.best_k_models.values()) == [0.9, 0.5, 0.1]


def test_checkpoints_of_an_earlier_run_are_not_written_over(tmp_path: Path) -> None:
    for _ in range(2):
        lumen_checkpoint = lumen.ModelCheckpoint(tmp_path / "c", "{epoch}", monitor="score", save_last=False)
        fit(tmp_path, [0.5], lumen_checkpoint)
    assert folders(tmp_path / "c") == ["epoch=1", "epoch=1-v1"]


def test_a_run_that_early_stopping_ended_stays_ended_when_it_is_resumed(tmp_path: Path) -> None:
    scores = [0.5, 0.4, 0.4, 0.4, 0.4]
    _, module = fit(tmp_path, scores, lumen.EarlyStopping("score", mode="max", patience=2))
    for patience, epochs in ((2, 3), (3, 4)):
        again = Scored(scores[3:])
        stopping = lumen.EarlyStopping("score", mode="max", patience=patience)
        trainer = quiet(tmp_path, callbacks=[stopping], max_epochs=5, num_sanity_val_steps=0)
        trainer.fit(again, loader(8), loader(4), ckpt_path="last")
        assert trainer.current_epoch == epochs
        assert (digest(again) == digest(module)) == (patience == 2)
        assert "did not improve" in trainer.stop_message


def test_early_stopping_on_a_value_of_training(tmp_path: Path) -> None:
    class Constant(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("const", 1.0, on_epoch=True)
            return super().training_step(batch, batch_idx)

    for validation in (None, loader(4)):
        trainer = quiet(tmp_path, callbacks=[lumen.EarlyStopping("const", patience=2)], max_epochs=9)
        trainer.fit(Constant(), loader(8), validation)
        assert trainer.current_epoch == 3
    with pytest.raises(ConfigError, match="'nonsense'"):
        quiet(tmp_path, callbacks=[lumen.EarlyStopping("nonsense")], max_epochs=9).fit(Constant(), loader(8))


def test_a_misspelt_validation_value_is_refused_before_training(tmp_path: Path) -> None:
    class NeverTrained(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise AssertionError

    for callback in (lumen.ModelCheckpoint(monitor="val_ac"), lumen.EarlyStopping("val_ac")):
        with pytest.raises(ConfigError, match="Did you mean 'val_acc'"):
            quiet(tmp_path, callbacks=[callback], max_epochs=1).fit(NeverTrained(), loader(8), loader(4))


def test_the_number_of_the_epoch_in_hand_is_lightnings(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Counting(Classifier):
        def on_train_epoch_start(self) -> None:
            seen.append(("start", self.current_epoch))

        def on_validation_epoch_end(self) -> None:
            seen.append(("validation", self.current_epoch))

        def on_train_epoch_end(self) -> None:
            seen.append(("end", self.current_epoch))

    trainer = quiet(tmp_path, max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(Counting(), loader(8), loader(4))
    assert seen == [(word, epoch) for epoch in (0, 1) for word in ("start", "validation", "end")]
    assert trainer.current_epoch == 2


def test_a_checkpoint_can_be_written_after_the_run(tmp_path: Path) -> None:
    trainer, module = fit(tmp_path, [0.1])
    path = trainer.save_checkpoint(tmp_path / "after")
    other = Classifier()
    quiet(tmp_path).validate(other, loader(4), ckpt_path=path)
    assert digest(other) == digest(module)


def test_where_all_checkpoints_are_damaged_nothing_starts_afresh(tmp_path: Path) -> None:
    trainer, _ = fit(tmp_path, [0.1])
    (Path(trainer.checkpoint_callback.last_model_path) / "state.json").write_text("{}")
    for given in ("auto", "last"):
        with pytest.raises(lumen.CheckpointError, match=r"state\.json"):
            quiet(tmp_path, max_epochs=2).fit(Classifier(), loader(8), loader(4), ckpt_path=given)


def test_an_epoch_is_not_gone_on_with_in_another_order(tmp_path: Path) -> None:
    quiet(tmp_path, max_steps=1).fit(Classifier(), loader(12))
    with pytest.raises(lumen.CheckpointError, match=r"order Sequential\(\); now it is Shuffled\(\)"):
        quiet(tmp_path, max_steps=2).fit(Classifier(), loader(12, shuffle=True), ckpt_path="last")


def test_validation_in_every_other_epoch_only_is_what_early_stopping_counts(tmp_path: Path) -> None:
    """Also when the run is resumed between two validations, with the value of the last one still known."""
    scores = [0.5, 0.4, 0.4, 0.4]
    options = {"check_val_every_n_epoch": 2, "max_epochs": 8}
    whole = lumen.EarlyStopping("score", mode="max", patience=3)
    trainer, _ = fit(tmp_path / "a", scores, whole, **options)
    assert (trainer.current_epoch, whole.wait_count) == (8, 3)
    keep = lumen.ModelCheckpoint(tmp_path / "b" / "c", every_n_epochs=1)
    fit(
        tmp_path / "b",
        scores,
        lumen.EarlyStopping("score", mode="max", patience=3),
        keep,
        **(options | {"max_epochs": 3}),
    )
    rest = lumen.EarlyStopping("score", mode="max", patience=3)
    module = Scored(scores[1:])
    resumed = quiet(tmp_path / "b", callbacks=[rest], num_sanity_val_steps=0, **options)
    resumed.fit(module, loader(8), loader(4), ckpt_path=tmp_path / "b" / "c" / "last")
    assert (resumed.current_epoch, rest.wait_count) == (8, 3)
