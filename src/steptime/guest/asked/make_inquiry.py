"""Makes what answers a question in this process, and puts the watcher in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...record.live.questions import ANSWERED, COUNT, HEALTH, PROFILE, Question
from .count_inquiry import CountInquiry
from .memory_inquiry import MemoryInquiry
from .question_watcher import Inquiry, QuestionWatcher

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext


def watch_for_questions(context: TorchContext) -> None:
    """Look for questions when the recorder writes; the head of the file says what they may be."""
    recorder = context.recorder
    recorder.answers = ANSWERED
    recorder.watchers.append(
        QuestionWatcher(recorder, lambda question: make_inquiry(context, question))
    )


def make_inquiry(context: TorchContext, question: Question) -> Inquiry:
    """Return what finds the answer to a question."""
    if question.what == COUNT:
        return CountInquiry()
    if question.what == PROFILE:
        from .profile_inquiry import ProfileInquiry  # few runs are asked for one

        return ProfileInquiry(context, question)
    if question.what == HEALTH:
        from .health_inquiry import HealthInquiry

        return HealthInquiry(context, question)
    return MemoryInquiry(context)
