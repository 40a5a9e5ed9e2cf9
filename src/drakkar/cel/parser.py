"""Tokens to syntax tree: operator precedence climbing, macros expanded on the way, limits of upstream's parser.

The whole grammar sits in one method so that a level of parentheses costs one Python frame (two, inside an operator):
expressions nested as deep as Kubernetes allows (250) then fit into Python's default recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from drakkar.cel import lexer
from drakkar.cel.errors import Source
from drakkar.cel.expressions import CallNode, IdentNode, ListNode, LiteralNode, MapNode, Node, SelectNode, StructNode

MAX_NESTING: Final = 250
TOO_NESTED: Final = f"expression recursion limit exceeded: {MAX_NESTING}"
TOO_DEEP: Final = "max recursion depth exceeded"

RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_BINARY: Final = {
    "||": (1, "_||_"),
    "&&": (2, "_&&_"),
    "<": (3, "_<_"),
    "<=": (3, "_<=_"),
    ">": (3, "_>_"),
    ">=": (3, "_>=_"),
    "==": (3, "_==_"),
    "!=": (3, "_!=_"),
    "in": (3, "@in"),
    "+": (4, "_+_"),
    "-": (4, "_-_"),
    "*": (5, "_*_"),
    "/": (5, "_/_"),
    "%": (5, "_%_"),
}
_LITERALS: Final[Mapping[str, Callable[[str], object]]] = {
    lexer.INT: lexer.int_value,
    lexer.UINT: lexer.uint_value,
    lexer.FLOAT: lexer.float_value,
    lexer.STRING: lexer.string_value,
    lexer.BYTES: lexer.bytes_value,
}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_EXPECTED: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)

Macro: TypeAlias = Callable[["MacroCall"], Node]


class MacroProblem(Exception):
    """A macro was called with what it cannot take: position and message."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


class MacroCall:
    """A call that a macro may expand: where it is, its target (None for functions) and arguments."""

    __slots__ = ("arguments", "position", "target")

    def __init__(self, position: int, target: Node | None, arguments: list[Node]) -> None:
        self.position = position
        self.target = target
        self.arguments = arguments


MacroTable: TypeAlias = Mapping[tuple[str, int, bool], Macro]


def parse(source: Source, macros: MacroTable) -> Node:
    """The tree of an expression; `macros` maps (name, number of arguments, is a method) to the expansion.

    Raises `CelError` of kind syntax with every problem found up to the first one that stops the parser.
    """
    parser = _Parser(source, macros)
    try:
        parser.tokens = lexer.tokens(source.text)
        node = parser.expression()
        parser.expect(lexer.END)
    except lexer.LexicalError as problem:
        raise source.failure("syntax", [*parser.problems, (problem.position, problem.message)]) from None
    except _Stop as problem:
        if problem.position < 0:
            parser.problems.clear()
        raise source.failure("syntax", [*parser.problems, (problem.position, problem.message)]) from None
    if parser.problems:
        raise source.failure("syntax", parser.problems)
    if node.depth > MAX_NESTING:
        raise source.failure("syntax", [(-1, TOO_DEEP)])
    return node


class _Stop(Exception):
    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


class _Parser:
    def __init__(self, source: Source, macros: MacroTable) -> None:
        self.source = source
        self.macros = macros
        self.tokens: list[tuple[str, str, int]] = []
        self.index = 0
        self.nesting = 0
        self.problems: list[tuple[int, str]] = []

    def expect(self, kind: str) -> int:
        """Step over a token of this kind and return its position."""
        found, text, position = self.tokens[self.index]
        if found != kind:
            wanted = kind if kind == lexer.END else f"'{kind}'"
            raise _Stop(position, f"Syntax error: mismatched input '{text}' expecting {wanted}")
        self.index += 1
        return position

    def expression(self) -> Node:
        """A whole expression, with the ternary operator."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise _Stop(-1, TOO_NESTED)
        node = self.binary(1)
        if self.tokens[self.index][0] == "?":
            position = self.tokens[self.index][2]
            self.index += 1
            then = self.binary(1)
            self.expect(":")
            node = CallNode(position, "_?_:_", None, [node, then, self.expression()])
            node.depth += 1
        self.nesting -= 1
        return node

    def binary(self, lowest: int) -> Node:
        """Operators that bind at least as tightly as `lowest`, with everything that binds tighter."""
        tokens = self.tokens
        begin = tokens[self.index][2]
        node = self.unary()
        while True:
            kind, _, position = tokens[self.index]
            operator = _BINARY.get(kind)
            if operator is None or operator[0] < lowest:
                return node
            level, function = operator
            if level <= 2:
                node = self.chain(node, begin, kind, level, function)
                continue
            self.index += 1
            node = CallNode(position, function, None, [node, self.binary(level + 1)])
            node.depth += 1

    def chain(self, first: Node, begin: int, kind: str, level: int, function: str) -> Node:
        """All operands of a chain of && or ||, as one call; with the text that each operand was."""
        tokens = self.tokens
        operands, positions = [first], []
        spans = [(begin, self.end_of_previous())]
        while tokens[self.index][0] == kind:
            positions.append(tokens[self.index][2])
            self.index += 1
            begin = tokens[self.index][2]
            operands.append(self.binary(level + 1))
            spans.append((begin, self.end_of_previous()))
        # Upstream makes a balanced tree of it; what is wrong with the whole is told at its root.
        node = CallNode(positions[len(positions) // 2], function, None, operands)
        node.spans = spans
        return node

    def end_of_previous(self) -> int:
        _, text, position = self.tokens[self.index - 1]
        return position + len(text)

    def unary(self) -> Node:
        """Signs and negations, a primary, and what follows it: selections, indexes, calls."""
        tokens = self.tokens
        kind, text, position = tokens[self.index]
        operator = ""
        if kind in ("!", "-"):
            operator, count = kind, 0
            start = position
            while tokens[self.index][0] == kind:
                self.index += 1
                count += 1
            if operator == "-" and count == 1 and tokens[self.index][0] in (lexer.INT, lexer.FLOAT):
                kind, text, _ = tokens[self.index]
                text = "-" + text
                operator = ""
            else:
                kind, text, position = tokens[self.index]
                if count % 2 == 0:
                    operator = ""
        self.index += 1
        node: Node
        if kind == lexer.IDENT:
            node = self.name(position, text, position)
        elif kind in _LITERALS:
            node = LiteralNode(position, self.literal(kind, text, position))
        elif kind in _CONSTANTS:
            node = LiteralNode(position, _CONSTANTS[kind])
        elif kind == "(":
            node = self.expression()
            self.expect_closing(")")
        elif kind == "[":
            node = self.list_literal(position)
        elif kind == "{":
            node = self.map_literal(position)
        elif kind == "." and tokens[self.index][0] == lexer.IDENT:
            _, word, at = tokens[self.index]
            self.index += 1
            node = self.name(at, "." + word, at)
        else:
            raise _Stop(position, f"Syntax error: mismatched input '{text}' expecting {_EXPECTED}")
        while tokens[self.index][0] in (".", "["):
            node = self.select(node) if tokens[self.index][0] == "." else self.subscript(node)
            node.depth += 1
        if operator:
            return CallNode(start, "!_" if operator == "!" else "-_", None, [node])
        return node

    def literal(self, kind: str, text: str, position: int) -> object:
        try:
            if text[0] == "-" and kind == lexer.FLOAT:
                return -float(lexer.float_value(text[1:]))
            return _LITERALS[kind](text)
        except ValueError as problem:
            self.problems.append((position, str(problem)))
            return None

    def name(self, position: int, word: str, at: int) -> Node:
        """A variable, a function call, or the beginning of a message literal."""
        kind, _, paren = self.tokens[self.index]
        if word.removeprefix(".") in RESERVED:
            start = position - 1 if word[0] == "." else position
            self.problems.append((start, f"reserved identifier: {word.removeprefix('.')}"))
            if kind not in ("(", "{", "."):
                return LiteralNode(at, None)  # no name, so that macros refuse it, too
        if kind == "(":
            self.index += 1
            return self.call(paren, word, None, self.arguments())
        if kind in ("{", "."):
            struct = self.struct_ahead(word)
            if struct is not None:
                return struct
        return IdentNode(at, word)

    def struct_ahead(self, word: str) -> Node | None:
        """A message literal, if only names and dots stand before an opening brace."""
        tokens, index = self.tokens, self.index
        name = word
        while tokens[index][0] == "." and tokens[index + 1][0] == lexer.IDENT:
            name += "." + tokens[index + 1][1]
            index += 2
        if tokens[index][0] != "{":
            return None
        position = tokens[index][2]
        self.index = index + 1
        fields: list[tuple[str, Node, bool, int]] = []
        while self.tokens[self.index][0] not in ("}", ","):
            optional = self.question()
            kind, text, at = self.tokens[self.index]
            if kind not in (lexer.IDENT, lexer.QUOTED_IDENT):
                raise _Stop(at, f"Syntax error: mismatched input '{text}' expecting IDENTIFIER")
            self.index += 1
            colon = self.expect(":")
            fields.append((text.strip("`"), self.expression(), optional, colon))
            if not self.comma("}"):
                break
        self.trailing_comma("}")
        self.expect_closing("}")
        return StructNode(position, name, fields)

    def select(self, operand: Node) -> Node:
        """`.field`, `.?field` or `.method(…)`."""
        tokens = self.tokens
        dot = tokens[self.index][2]
        self.index += 1
        optional = self.question()
        kind, text, position = tokens[self.index]
        if kind not in (lexer.IDENT, lexer.QUOTED_IDENT):
            raise _Stop(position, f"Syntax error: mismatched input '{text}' expecting IDENTIFIER")
        self.index += 1
        if optional:
            field = LiteralNode(position, text.strip("`"))
            return CallNode(dot, "_?._", None, [operand, field])
        following, _, paren = tokens[self.index]
        if following == "(" and kind == lexer.IDENT:
            self.index += 1
            return self.call(paren, text, operand, self.arguments())
        return SelectNode(dot, operand, text.strip("`"))

    def subscript(self, operand: Node) -> Node:
        position = self.tokens[self.index][2]
        self.index += 1
        optional = self.question()
        key = self.expression()
        self.expect_closing("]")
        return CallNode(position, "_[?_]" if optional else "_[_]", None, [operand, key])

    def question(self) -> bool:
        if self.tokens[self.index][0] != "?":
            return False
        self.index += 1
        return True

    def arguments(self) -> list[Node]:
        arguments: list[Node] = []
        if self.tokens[self.index][0] == ")":
            self.index += 1
            return arguments
        while True:
            arguments.append(self.expression())
            if self.tokens[self.index][0] != ",":
                self.expect_closing(")")
                return arguments
            self.index += 1

    def list_literal(self, position: int) -> Node:
        elements: list[Node] = []
        optional: set[int] = set()
        while self.tokens[self.index][0] not in ("]", ","):
            if self.question():
                optional.add(len(elements))
            elements.append(self.expression())
            if not self.comma("]"):
                break
        self.trailing_comma("]")
        self.expect_closing("]")
        return ListNode(position, elements, frozenset(optional))

    def map_literal(self, position: int) -> Node:
        entries: list[tuple[Node, Node, bool, int]] = []
        while self.tokens[self.index][0] not in ("}", ","):
            optional = self.question()
            key = self.expression()
            colon = self.expect(":")
            entries.append((key, self.expression(), optional, colon))
            if not self.comma("}"):
                break
        self.trailing_comma("}")
        self.expect_closing("}")
        return MapNode(position, entries)

    def comma(self, closing: str) -> bool:
        """Step over a comma that is followed by another element."""
        tokens, index = self.tokens, self.index
        if tokens[index][0] != "," or tokens[index + 1][0] == closing:
            return False
        if tokens[index + 1][0] == ",":
            raise _Stop(tokens[index + 1][2], f"Syntax error: extraneous input ',' expecting '{closing}'")
        self.index += 1
        return True

    def trailing_comma(self, closing: str) -> None:
        tokens, index = self.tokens, self.index
        if tokens[index][0] == "," and tokens[index + 1][0] == closing:
            self.index += 1

    def expect_closing(self, kind: str) -> None:
        found, text, position = self.tokens[self.index]
        if found != kind:
            wanted = f"'{kind}'"
            if found == lexer.END:
                raise _Stop(position, f"Syntax error: missing {wanted} at '{text}'")
            raise _Stop(position, f"Syntax error: mismatched input '{text}' expecting {wanted}")
        self.index += 1

    def call(self, position: int, function: str, target: Node | None, arguments: list[Node]) -> Node:
        """A call, or what its macro makes of it."""
        macro = self.macros.get((function, len(arguments), target is not None))
        if macro is not None:
            try:
                expansion = macro(MacroCall(position, target, arguments))
                expansion.depth = CallNode(position, function, target, arguments).depth
                return expansion
            except MacroProblem as problem:
                self.problems.append((problem.position, problem.message))
            except NotImplementedError:
                pass  # the macro leaves this call as it is
        return CallNode(position, function, target, arguments)
