"""`tfimg completion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument

SCRIPTS = {
    "bash": """\
_tfimg() {
  local word value
  word=${COMP_WORDS[COMP_CWORD]}
  [ "$word" != = ] || word=
  COMPREPLY=()
  while IFS=$'\\t' read -r value _; do
    case $value in "$word"*) COMPREPLY+=("$(printf %q "$value")") ;; esac
  done < <(tfimg __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _tfimg tfimg
""",
    "zsh": """\
#compdef tfimg
_tfimg() {
  local line
  local -a values
  while IFS= read -r line; do
    values+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
  done < <(tfimg __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( $#values )) && _describe tfimg values || _files
}
compdef _tfimg tfimg
""",
    "fish": """\
complete -c tfimg -a '(tfimg __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
"""Shell → script, which asks `tfimg __complete` for values; each is a line: value, tab, description."""


@dataclass(frozen=True)
class Completion(Command):
    """Print a completion script for your shell.

    Examples:
      eval "$(tfimg completion bash)"
      tfimg completion fish > ~/.config/fish/completions/tfimg.fish
    """

    shell: Literal["bash", "zsh", "fish"] = argument("name of the shell", "SHELL")

    def run(self, _context: Context) -> int:
        print(SCRIPTS[self.shell], end="")
        return 0
