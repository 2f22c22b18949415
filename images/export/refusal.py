"""Why a model cannot be exported."""


class Refused(Exception):
    """The model, or the request, has no way to the target. `outcome` is refused, or wrong if an answer is."""

    def __init__(self, what, next_step, outcome="refused", **details):
        super().__init__(what)
        self.next_step = next_step
        self.outcome = outcome
        self.details = details
