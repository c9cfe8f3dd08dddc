"""The Trainer: its arguments, what stands around a loop, and what callbacks see of a run."""

from lumen.trainer.facade import Trainer as Trainer
