"""Shell completion: a script for bash (and zsh, through bashcompinit) with the words of the command
line as they are.

Made from the parser and needing nothing when a key is pressed: importing the package for each press
would take a second.
"""

from __future__ import annotations

import argparse

_SCRIPT = """\
if [ -n "${{ZSH_VERSION-}}" ]; then autoload -U +X bashcompinit && bashcompinit; fi
_fegsam() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" way="" given
    for given in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$way $given" in
{commands}
        esac
    done
    local words=""
    case "$way" in
{words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case "$word" in -*) ;; *) COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}}
complete -o filenames -F _fegsam fegsam
"""


def bash_script(parser: argparse.ArgumentParser) -> str:
    """The script for a parser and its subcommands.

    Examples
    --------
    >>> parser = argparse.ArgumentParser(prog="fegsam")
    >>> parser.add_subparsers().add_parser("run").add_argument("--check").dest
    'check'
    >>> "--check" in bash_script(parser)
    True
    """
    ways = dict(_walk(parser, ""))
    commands = "\n".join(f'            "{way}") way="{way}" ;;' for way in ways if way)
    words = "\n".join(
        f'        "{way}") words="{" ".join(known)}" ;;' for way, known in ways.items()
    )
    return _SCRIPT.format(commands=commands, words=words)


def _walk(parser: argparse.ArgumentParser, way: str) -> list[tuple[str, list[str]]]:
    """Each command by the words that lead to it, with the words that may follow."""
    words: list[str] = []
    inner: list[tuple[str, list[str]]] = []
    for action in parser._actions:
        words += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                words.append(name)
                inner += _walk(command, f"{way} {name}")
        elif action.choices is not None:
            words += [str(choice) for choice in action.choices]
    return [(way, words), *inner]
