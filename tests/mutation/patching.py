"""Put a mutant into existing functions, so that nothing is imported for it."""

import ast
import gc
import inspect
from collections import defaultdict
from types import CodeType, FunctionType
from typing import TypeAlias

Place: TypeAlias = tuple[str, str, int]
"""File, qualified name and first line of a function's code."""


def functions_below(folder: str) -> dict[Place, list[FunctionType]]:
    """The existing functions of files below a folder, by the position of their code."""
    found = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(folder):
            found[place_of(each.__code__)].append(each)
    return found


def place_of(code: CodeType) -> Place:
    """The position of a function's code: the same if the module is compiled again."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def changed_code(tree: ast.Module, changed: ast.Module, file: str) -> dict[CodeType, CodeType] | None:
    """The code of the functions in which a module differs from its mutant: the original and the mutant's.

    None if it differs in code that runs on import: constants, class bodies, defaults, decorators.
    """
    found: dict[CodeType, CodeType] = {}
    is_inside = _collect(compile(tree, file, "exec"), compile(changed, file, "exec"), found)
    return found if is_inside else None


def put(codes: dict[CodeType, CodeType], functions: dict[Place, list[FunctionType]]) -> bool:
    """Replace the code of functions; False, without effect, if none has it or one closes over other names."""
    pairs = [(function, code) for was, code in codes.items() for function in functions.get(place_of(was), ())]
    if not pairs or any(function.__code__.co_freevars != code.co_freevars for function, code in pairs):
        return False
    for function, code in pairs:
        function.__code__ = code
    return True


def _collect(was: CodeType, now: CodeType, found: dict[CodeType, CodeType]) -> bool:
    """Whether all differences are inside functions, which are added to those found."""
    if was == now:
        return True
    is_function = bool(was.co_flags & inspect.CO_OPTIMIZED)  # neither a module nor a class
    if is_function:
        found[was] = now
    elif _without_inner(was) != _without_inner(now):
        return False
    inner, inner_now = _inner(was), _inner(now)
    places = [place_of(code) for code in inner]
    if places != [place_of(code) for code in inner_now] or len(set(places)) < len(places):
        return is_function
    are_inside = [_collect(one, other, found) for one, other in zip(inner, inner_now, strict=True)]
    return all(are_inside)


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _without_inner(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(None if isinstance(each, CodeType) else each for each in code.co_consts))
