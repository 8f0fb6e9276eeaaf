"""A world of BFCL's multi-turn dialogs: its Python classes, its recorded questions, its verdict.

The classes come with the package bfcl-eval. Its own executor is not used: that keeps worlds in
module globals by the dialog's id, so that two rollouts share one, never frees them, and hands a
model's text to `eval`. The verdict is that of its `multi_turn_checker` on every dialog; a test
holds both against each other.
"""

import ast
import copy
import importlib
import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.tool_results import no_tool_result

REFUSED_FUNCTIONS = {"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"}
# the question of a turn that has none of its own: functions that were held back are on offer now
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"


class PythonCall(NamedTuple):
    """`sort('a.txt', n=2)`, read."""

    name: str
    positional: Sequence[Any]
    arguments: Mapping[str, Any]


class Instances:
    """One object of each class that a dialog involves, and what their methods return."""

    def __init__(self, row: Mapping[str, Any]):
        from bfcl_eval.constants.executable_backend_config import (
            CLASS_FILE_PATH_MAPPING,
            STATELESS_CLASSES,
        )

        long_context = "long_context" in row["id"]
        self.objects: dict[str, Any] = {}
        # of two methods of one name the last class's is called
        self.methods: dict[str, Callable[..., object]] = {}
        for name in row["involved_classes"]:
            instance = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                # a copy: what a world changes must not reach the next one of the same dialog
                instance._load_scenario(
                    copy.deepcopy(row["initial_config"].get(name, {})), long_context=long_context
                )
            self.objects[name] = instance
            methods = inspect.getmembers(instance, inspect.ismethod)
            self.methods |= {method: bound for method, bound in methods if method[0] != "_"}

    def call(self, call: PythonCall) -> str:
        """The result as BFCL writes it. Raises nothing: an exception is a result."""
        try:
            if call.name in REFUSED_FUNCTIONS:
                raise Exception(f"Function call {call.name} is not allowed.")
            if call.name not in self.methods:
                raise NameError(f"name '{call.name}' is not defined")
            result = self.methods[call.name](*call.positional, **call.arguments)
        except Exception as error:
            return f"Error during execution: {error}"
        if isinstance(result, dict):
            try:
                return json.dumps(result)
            except (TypeError, ValueError):
                pass
        return str(result)


class BfclWorld:
    """A dialog of BFCL's categories multi_turn_*, with the gold beside it, turn by turn."""

    def reset(self, **row: Any) -> None:
        """`row`: BFCL's own, with its `ground_truth`, and the tools as agentlite writes them under
        `tools` and, by turn, under `held_back`. `only_offered`: no other tool is there.
        """
        self.row = row
        self.gold_turns: list[list[str]] = row["ground_truth"]
        self.instances, self.gold_instances = Instances(row), Instances(row)
        self.offered_tools = list(row["tools"])
        self.results: list[str] = []
        self.turn, self.call_count = 0, 0  # of the user's; calls in this turn
        self.problem = ""  # BFCL's word for what was wrong first
        self.right_turns = 0  # turns of the user's before that

    def tools(self) -> list[dict[str, Any]]:
        return self.offered_tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.carry_out(PythonCall(name, (), arguments))

    def carry_out(self, call: PythonCall) -> str:
        """BFCL carries out every method of its classes, also one that is not on offer (yet)."""
        self.call_count += 1
        names = [tool["function"]["name"] for tool in self.offered_tools]
        is_callable = call.name in names or not self.row.get("only_offered")
        result = self.instances.call(call) if is_callable else no_tool_result(call.name, names)
        self.results.append(result)
        return result

    def next_user(self, answer: str) -> str | None:
        """Ends the user's turn: it is judged. The next question, or None behind the last."""
        self._judge_turn()
        if self.turn == len(self.gold_turns):
            return None
        self.offered_tools += self.row["held_back"].get(str(self.turn), [])
        texts = [message["content"] for message in self.row["question"][self.turn]]
        return "\n\n".join(texts) or MORE_FUNCTIONS

    def _judge_turn(self) -> None:
        """State and responses after a turn of the user's, as `multi_turn_checker` has them. A turn
        without gold is not judged, and its calls stay done.
        """
        gold_calls = self.gold_turns[self.turn]
        # also where nothing is judged any more: the gold's world has to go on
        responses = [self.gold_instances.call(read_call(text)) for text in gold_calls]
        if gold_calls and not self.problem:
            if not self.call_count:
                self.problem = "empty_turn_model_response"
            elif not self._is_as_gold():
                self.problem = "instance_state_mismatch"
            # the results of all turns until now: a call may have been made before it was expected
            elif Counter(responses) - Counter(self.results):
                self.problem = "execution_response_mismatch"
        self.right_turns += not self.problem
        self.turn, self.call_count = self.turn + 1, 0

    @property
    def verdict(self) -> str:
        """BFCL's word for what was wrong, "" where nothing was. A dialog that ended before its last
        turn was cut by the limit of steps.
        """
        # the limit of steps may end the last turn as well: BFCL judges that all the same
        if self.turn < len(self.gold_turns) - 1:
            return "force_terminated"
        if self.turn < len(self.gold_turns):
            self._judge_turn()
        return self.problem

    def get_scores(self) -> dict[str, float]:
        """`bfcl`: the verdict. `progress`: the share of the turns before the first that was wrong.
        `state`: whether the world ends as the gold's does.
        """
        verdict = self.verdict  # first of all: it may judge the last turn
        return {
            "bfcl": float(not verdict),
            "progress": self.right_turns / len(self.gold_turns),
            "state": float(self.turn == len(self.gold_turns) and self._is_as_gold()),
        }

    def get_turn_scores(self) -> list[dict[str, float]]:
        """`turn_right`: whether a turn and all before it are right, as they are judged so far."""
        return [{"turn_right": float(n < self.right_turns)} for n in range(len(self.gold_turns))]

    def state(self) -> dict[str, Any]:
        """Class -> public attribute -> its value as Python writes it."""
        return {
            name: {key: repr(value) for key, value in vars(instance).items() if key[0] != "_"}
            for name, instance in self.instances.objects.items()
        }

    def _is_as_gold(self) -> bool:
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import state_checker

        return bool(state_checker(self.instances.objects, self.gold_instances.objects)["valid"])


def read_call(text: str) -> PythonCall:
    """A call as BFCL's gold writes it. Raises SyntaxError or ValueError where it is not a call with
    plain values; nothing is evaluated.
    """
    node = ast.parse(text.strip(), mode="eval").body
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
        if len(arguments) == len(node.keywords):  # `**{...}` is one without a name
            return PythonCall(node.func.id, list(map(ast.literal_eval, node.args)), arguments)
    raise ValueError(f"{text}: not a call of a function by its name")
