"""Reads the prompts of an installed Harbor, without running any of it.

Prints one JSON object: {"version": ..., "prompts": {name: [piece, ...]}}, where a piece is a text or
{"slot": name}. What is not where it is looked for ends this with its name on standard error and code 3.
"""

import ast
import importlib.metadata
import importlib.util
import json
import pathlib
import string
import sys


def fail(what):
    print(what, file=sys.stderr)
    sys.exit(3)


spec = importlib.util.find_spec("harbor")
if spec is None or not spec.submodule_search_locations:
    fail("no package named harbor")
try:
    version = importlib.metadata.version("harbor")
except importlib.metadata.PackageNotFoundError:
    version = None
ROOT = pathlib.Path(list(spec.submodule_search_locations)[0]) / "agents" / "terminus_2"


def text_of(name):
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        fail(f"{ROOT / name}: can not be read")


class Source:
    """The functions of a module, by name."""

    def __init__(self, name):
        self.name = name
        try:
            tree = ast.parse(text_of(name))
        except SyntaxError:
            fail(f"{ROOT / name}: no Python")
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}

    def nodes(self, function, kind):
        if function not in self.functions:
            fail(f"{self.name}: no {function}")
        found = [node for node in ast.walk(self.functions[function]) if isinstance(node, kind)]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def is_text(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def flat(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [piece for value in node.values for piece in flat(value)]
    if isinstance(node, ast.FormattedValue):
        return [{"slot": ast.unparse(node.value)}]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return flat(node.left) + flat(node.right)
    return [{"slot": ast.unparse(node)}]


def assigned(source, function, name):
    out = []
    for node in source.nodes(function, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if [ast.unparse(t) for t in targets] == [name] and is_text(node.value) and flat(node.value) != [""]:
            out.append(node.value)
    return out


def returned(source, function):
    out = []
    for node in source.nodes(function, ast.Return):
        value = node.value
        if isinstance(value, ast.Tuple) and len(value.elts) == 2:
            value = value.elts[1]
            if isinstance(value, ast.List) and len(value.elts) == 1:
                value = value.elts[0]
        if value is not None and is_text(value) and flat(value) != [""]:
            out.append(value)
    return out


def appended(source, function):
    calls = [n for n in source.nodes(function, ast.Call) if ast.unparse(n.func) == "warnings.append"]
    return [call.args[0] for call in calls if len(call.args) == 1 and is_text(call.args[0])]


def argument(source, function, called, place):
    out = []
    for call in source.nodes(function, ast.Call):
        if ast.unparse(call.func) == called:
            named = {k.arg: k.value for k in call.keywords}
            value = named.get(place) if isinstance(place, str) else (call.args[place : place + 1] or [None])[0]
            if value is not None and is_text(value) and flat(value) != [""]:
                out.append(value)
    return out


loop = Source("terminus_2.py")
parser = Source("terminus_json_plain_parser.py")
prompts = {}


def take(name, found, index, slots, of=None):
    if (of is not None and len(found) != of) or index >= len(found):
        fail(f"the prompt {name} is not where it is looked for")
    pieces = []
    for piece in flat(found[index]) if isinstance(found[index], ast.AST) else found[index]:
        if isinstance(piece, dict):
            if piece["slot"] not in slots:
                fail(f"the prompt {name} has a part that is not known: {piece['slot']}")
            value = slots[piece["slot"]]
            pieces.extend(value if isinstance(value, list) else [{"slot": value}])
        else:
            pieces.append(piece)
    prompts[name] = pieces


def formatted(text):
    out = []
    for literal, field, _, _ in string.Formatter().parse(text):
        if literal:
            out.append(literal)
        if field is not None:
            out.append({"slot": field})
    return out


take("first", [formatted(text_of("templates/terminus-json-plain.txt"))], 0,
     {"instruction": "instruction", "terminal_state": "terminal"})
kind = flat(returned(loop, "_get_error_response_type")[0])
run = "_run_agent_loop"
limited = "self._limit_output_length(terminal_output)"
take("parse-error", assigned(loop, run, "prompt"), 0,
     {"feedback": "feedback", "self._get_error_response_type()": kind}, 1)
take("warned", assigned(loop, run, "observation"), 0, {"feedback": "feedback", limited: "terminal"}, 1)
take("confirm", returned(loop, "_get_completion_confirmation_message"), 0, {"terminal_output": "terminal"}, 2)
take("omitted", returned(loop, "_limit_output_length"), 0,
     {"first_portion": "head", "last_portion": "tail", "max_bytes": "limit", "omitted_bytes": "omitted"}, 1)
ask = "_query_llm"
take("too-long", assigned(loop, ask, "error_msg"), 0, {"limit_str": "limit"}, 1)
prompts["too-long"].append({"slot": "remarks"})
take("too-long-remarks", assigned(loop, ask, "warnings_text"), 0, {"parse_result.warning": "warnings"}, 1)
take("limit-tokens", assigned(loop, ask, "limit_str"), 0, {"output_limit": "tokens"}, 2)
take("limit-unknown", assigned(loop, ask, "limit_str"), 1, {}, 2)
tell = "_summarize"
task = {"original_instruction": "instruction"}
take("summary", assigned(loop, tell, "summary_prompt"), 0, task, 1)
take("questions", assigned(loop, tell, "question_prompt"), 0,
     task | {"summary_response.content": "summary", "current_screen": "screen"}, 1)
take("answers", assigned(loop, tell, "answer_request_prompt"), 0, {"model_questions": "questions"}, 1)
take("handoff", assigned(loop, tell, "handoff_prompt"), 0, {"answers_response.content": "answers"}, 1)
screen = task | {"limited_screen": "screen"}
take("short", assigned(loop, ask, "short_prompt"), 0, screen, 1)
take("short-handoff", assigned(loop, ask, "summary_prompt"), 0, task | {"short_llm_response.content": "summary"}, 2)
take("bare-handoff", assigned(loop, ask, "summary_prompt"), 1, screen, 2)
take("lost", argument(loop, ask, "LLMResponse", "content"), 0, {}, 1)
feedback = assigned(loop, "_handle_llm_interaction", "feedback")
take("error", feedback, 0, {"result.error": "error"}, 3)
take("error-warnings", feedback, 1, {"result.warning": "warnings"}, 3)
take("warnings", feedback, 2, {"result.warning": "warnings"}, 3)

tried = "_try_parse_response"
message = assigned(parser, tried, "error_msg")
take("NoJson", argument(parser, tried, "ParseResult", 2), 0, {}, 1)
take("InvalidJson", message, 0, {"str(e)": "detail"}, 3)
take("InvalidWhole", message, 1, {"repr(json_content)": "content"}, 3)
take("InvalidBegin", message, 2, {"repr(json_content[:100])": "content"}, 3)
for name in ["InvalidWhole", "InvalidBegin"]:
    prompts[name].insert(0, {"slot": "fault"})
take("NoObject", returned(parser, "_extract_json_content"), 0, {}, 1)
for index, name in enumerate(["TextBefore", "TextAfter"]):
    take(name, appended(parser, "_extract_json_content"), index, {}, 2)
checked = "_validate_json_structure"
take("Missing", returned(parser, checked), 1, {"', '.join(missing_fields)": "fields"}, 3)
take("CommandsNoList", returned(parser, checked), 2, {}, 3)
for index, name in enumerate(["AnalysisNoText", "PlanNoText", "CompleteNoBool"]):
    take(name, appended(parser, checked), index, {}, 3)
number = {"i + 1": "n"}
for index, name in enumerate(["CommandNoObject", "CommandNoKeys", "CommandKeysNoText"]):
    take(name, returned(parser, "_parse_commands"), index, number, 3)
for index, name in enumerate(["DurationInvalid", "DurationMissing", "UnknownFields", "NoEndOfLine"]):
    take(name, appended(parser, "_parse_commands"), index, number | {"', '.join(unknown_fields)": "fields"}, 4)
take("Order", appended(parser, "_check_field_order"), 0, {"actual_str": "found", "expected_str": "expected"}, 1)
fixes = [n.elts[0] for n in parser.nodes("_get_auto_fixes", ast.Tuple) if len(n.elts) == 2 and is_text(n.elts[0])]
for index, name in enumerate(["BracesAdded", "Extracted"]):
    if len(fixes) != 2:
        fail(f"the prompt {name} is not where it is looked for")
    take(name, assigned(parser, "parse_response", "auto_warning"), 0, {"fix_name": flat(fixes[index])}, 1)

json.dump({"version": version, "path": str(ROOT), "prompts": prompts}, sys.stdout)
