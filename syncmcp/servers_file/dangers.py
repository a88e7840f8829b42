"""Warnings of a review: properties of a command and its variables that often mean harm.

`VARIABLES` and `PROGRAMS` are the tables of docs/warnings.md. A command without a warning may be
harmful: the tables name common dangers, not all dangers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from typing import Final, NamedTuple

# -- the tables -----------------------------------------------------------------------------------


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class Variables(NamedTuple):
    """Environment variables, ignoring case (``*`` is any characters), and what each decides."""

    names: tuple[str, ...]
    effect: str


class Programs(NamedTuple):
    """Programs by the last part of their path, ignoring case, and endings such as ``.exe``.

    If there are `words`, one of them has to follow (``*`` stands for any characters). With
    `before_script`, that word must be one of the interpreter's own options, which come before the
    script.
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    warning: str
    before_script: bool = False


_CODE: Final = "which code runs"
_SOURCE: Final = "where its packages come from"

VARIABLES: Final = (
    Variables(
        _names(
            "LD_* DYLD_* LIBPATH GCONV_PATH GLIBC_TUNABLES LOCPATH NLSPATH OPENSSL_CONF "
            "OPENSSL_ENGINES OPENSSL_MODULES"
        ),
        _CODE,
    ),
    Variables(("PATH", "PATHEXT", "COMSPEC", "SHELL", "SYSTEMROOT", "WINDIR"), _CODE),
    Variables(
        ("HOME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "XDG_*"),
        "which settings its programs read",
    ),
    Variables(
        _names(
            "BASH_ENV BASH_FUNC_* BASHOPTS SHELLOPTS ENV ZDOTDIR FPATH IFS PS4 PROMPT_COMMAND "
            "PSMODULEPATH"
        ),
        _CODE,
    ),
    Variables(
        _names(
            "PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE PYTHONPLATLIBDIR "
            "PYTHONEXECUTABLE PYTHONPYCACHEPREFIX PYTHONBREAKPOINT PYTHONWARNINGS NODE_OPTIONS "
            "NODE_PATH NODE_REPL_EXTERNAL_MODULE ELECTRON_RUN_AS_NODE PERL5LIB PERL5OPT PERL5DB "
            "PERLLIB RUBYLIB RUBYOPT GEM_* BUNDLE_* JAVA_TOOL_OPTIONS _JAVA_OPTIONS "
            "JDK_JAVA_OPTIONS JAVA_HOME CLASSPATH DOTNET_STARTUP_HOOKS DOTNET_ADDITIONAL_DEPS "
            "DOTNET_SHARED_STORE DOTNET_ROOT* CORECLR_* COR_* PHPRC PHP_INI_SCAN_DIR LUA_* "
            "R_LIBS* R_PROFILE* JULIA_LOAD_PATH JULIA_DEPOT_PATH ERL_* GOROOT GOFLAGS GOENV "
            "RUSTC*"
        ),
        _CODE,
    ),
    Variables(
        ("DOCKER_*", "CONTAINER_*", "CONTAINERS_*", "PODMAN_*", "KUBECONFIG"),
        "which computer runs its containers, and how",
    ),
    Variables(
        _names(
            "NPM_CONFIG_* YARN_* PNPM_* BUN_* DENO_* JSR_URL UV_* PIP_* PIPX_* POETRY_* CONDA_* "
            "CARGO_* RUSTUP_* NUGET_* MAVEN_* GRADLE_* COREPACK_* VOLTA_HOME GOTOOLCHAIN "
            "GOPROXY GOPRIVATE GOSUMDB GONOSUMDB GONOSUMCHECK "
            "GOINSECURE"
        ),
        _SOURCE,
    ),
    Variables(
        _names(
            "GIT_SSH* GIT_CONFIG* GIT_EXEC_PATH GIT_ASKPASS GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF "
            "GIT_TEMPLATE_DIR GIT_DIR GIT_EDITOR GIT_PAGER GIT_SEQUENCE_EDITOR SSH_ASKPASS "
            "EDITOR VISUAL PAGER BROWSER LESSOPEN LESSCLOSE"
        ),
        _CODE,
    ),
    Variables(
        _names(
            "*_PROXY SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE "
            "GIT_SSL_* NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED"
        ),
        "who can read and change what it sends and loads",
    ),
)
"""The environment variables that carry a warning."""

_FETCHES: Final = "The command downloads and runs a program from the internet."
_SHELL: Final = "A shell interprets the command: it may do more than start a server."
_INLINE: Final = "The code to run is in the command itself."
_LOADS: Final = "Other code runs before the program."
_COMPOSES: Final = "A file decides which containers run, and what they can access."
_MOUNTS: Final = "Its container has access to files of this computer."
_OPEN: Final = "Its container is not isolated from this computer."
_CONTAINERS: Final = ("docker", "podman", "nerdctl")

PROGRAMS: Final = (
    Programs(("npx", "bunx", "pnpx", "uvx", "dnx", "nix-shell"), (), _FETCHES),
    Programs(("pipx", *_CONTAINERS), ("run",), _FETCHES),
    Programs(("nix",), ("run", "shell", "develop", "build", "profile"), _FETCHES),
    Programs(
        ("npm", "pnpm", "yarn", "bun"),
        ("exec", "x", "dlx", "create", "init", "install", "i", "ci", "add"),
        _FETCHES,
    ),
    Programs(("uv",), ("tool", "--with*", "--from", "http:*", "https:*"), _FETCHES),
    Programs(("go", "deno"), ("*@*", "http:*", "https:*", "npm:*", "jsr:*"), _FETCHES),
    Programs(
        _names("pip cargo gem brew conda mamba apt apt-get choco winget scoop dotnet"),
        ("install", "download", "wheel", "tool"),
        _FETCHES,
    ),
    Programs(
        _names("sh bash rbash dash zsh fish ksh mksh ash csh tcsh yash busybox nu su runuser"),
        _names("-c* -[!-]*c* --command* --session-command* --init* --rcfile*"),
        _SHELL,
    ),
    Programs(("nu",), ("-e*", "--execute*"), _SHELL),
    Programs(("cmd",), _names("/c* /k* /r* /s* /*/c* /*/k* /*/r*"), _SHELL),
    Programs(("powershell",), (), _SHELL),
    Programs(("pwsh",), ("-c*", "/c*", "-e*", "/e*"), _SHELL),
    Programs(
        ("su", "runuser", "nsenter", "wsl"),
        (),
        "The command runs a program as another user, or outside its sandbox.",
    ),
    Programs(
        ("python", "pythonw", "py", "ipython", "pypy"),
        ("-c*", "-[!-WmX]*c*"),
        _INLINE,
        before_script=True,
    ),
    Programs(
        ("perl", "ruby", "lua", "osascript"), ("-e*", "-[!-ILMr]*e*"), _INLINE, before_script=True
    ),
    Programs(
        ("node", "nodejs", "bun", "tsx"),
        ("-e", "-p", "-pe", "-ep", "--eval*", "--print*"),
        _INLINE,
        before_script=True,
    ),
    Programs(("deno",), ("eval",), _INLINE, before_script=True),
    Programs(("php",), ("-r*", "-b*", "-e*"), _INLINE, before_script=True),
    Programs(
        _names("rscript julia elixir erl groovy scala ghc swift raku guile"),
        ("-e*", "--eval*"),
        _INLINE,
        before_script=True,
    ),
    Programs(
        ("emacs", "vim", "nvim", "gdb", "expect", "sqlite3"),
        _names("-c* +* --eval* -eval* -ex* --cmd* -cmd*"),
        _INLINE,
    ),
    Programs(("awk", "gawk", "mawk", "nawk"), (), _INLINE),
    Programs(
        _names("mshta rundll32 regsvr32 wscript cscript msiexec certutil bitsadmin installutil"),
        (),
        "The arguments name code to run.",
    ),
    Programs(
        ("git",),
        ("*.*=*", "--config-env*", "--exec-path*"),
        "Settings in the command may decide which code runs.",
    ),
    Programs(_CONTAINERS, ("compose",), _COMPOSES),
    Programs(("docker-compose", "podman-compose"), (), _COMPOSES),
    Programs(_CONTAINERS, ("-v*", "--volume*", "--mount*", "--device*"), _MOUNTS),
    Programs(
        _CONTAINERS,
        _names(
            "--privileged* --net*host --network*host --pid* --ipc* --userns* host --cap-add* "
            "--security-opt* --volumes-from* *docker.sock* /:* -v/:*"
        ),
        _OPEN,
    ),
    Programs(
        ("node", "nodejs", "npx", "npm", "bun", "bunx", "tsx", "deno"),
        _names("--require* --import* --loader* --experimental-loader* --preload* --node-options*"),
        _LOADS,
    ),
    Programs(("node", "nodejs", "bun", "tsx", "ruby"), ("-r*",), _LOADS, before_script=True),
    Programs(("perl",), ("-M*",), _LOADS, before_script=True),
    Programs(("lua",), ("-l*",), _LOADS, before_script=True),
    Programs(("java",), ("-javaagent*", "-agentlib*", "-agentpath*", "-Xbootclasspath*"), _LOADS),
    Programs(
        ("npx", "npm", "pnpm", "yarn", "bunx", "bun", "uvx", "uv", "pip", "pipx"),
        _names(
            "--registry* --index* --default-index* --extra-index* --find-links* -i -f "
            "--userconfig* --globalconfig* --config-file*"
        ),
        "The command chooses the source of packages.",
    ),
)
"""The programs and words that carry a warning, anywhere in a command."""

_CREDENTIALS = (
    r"(?:^|[\s/\\~])\.(?:ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|git-credentials)\b"
    r"|/etc/(?:passwd|shadow|sudoers)"
)
_DELETING = r"\brm\s+(?:-\S+\s+)*-\w*[rf]|\b(?:mkfs|shred|rmdir)\b|\bdel\s+/|\bdd\s.*\bof="
_SENDING = r"(?<!\.)\b(?:curl|wget|nc|ncat|scp|ssh|telnet|Invoke-WebRequest|iwr)\b"
_TEXTS = (
    (r"\b(?:sudo|doas|pkexec|runas)\b", "The command asks for administrator rights."),
    (_DELETING, "The command deletes or overwrites files."),
    (_SENDING, "The command transfers data over the network."),
    (_CREDENTIALS, "The command names files that hold credentials."),
    (r"(?:^|[\s=\"'])\\\\[^\\\s]", "The command names a place on another computer."),
)
# The longest command that is searched for dangers, in characters: limits the time of the patterns.
# A person would not read a longer one anyway.
_MAX_COMMAND = 4_000

# -- the warnings ---------------------------------------------------------------------------------


def command_warnings(command: Sequence[str], variables: Iterable[str]) -> list[str]:
    """Return the warnings about a command, one sentence each.

    Programs are found by name or path anywhere in the command: also after `env`, `sudo`, `timeout`
    or a sandbox, and within a word that has spaces, as for ``env -S``. `variables` are the names of
    the variables that the program would get.
    """
    line = " ".join(command)
    found = ["The command is too long to check in full."] if len(line) > _MAX_COMMAND else []
    line = line[:_MAX_COMMAND]
    found += [text for pattern, text in _TEXTS if re.search(pattern, line, re.IGNORECASE)]
    words = list(_words(command))
    found += _program_warnings(words)
    assigned = [name for name, is_one, _ in (word.partition("=") for word in words) if is_one]
    found += [
        f"{_plain(name)} decides {kind.effect}."
        for name in (*variables, *assigned)
        if (kind := _kind(name)) is not None
    ]
    return list(dict.fromkeys(found))


def _plain(variable: str) -> str:
    """Return the name of a variable, unless it could look like text of this program."""
    return variable if _PLAIN.fullmatch(variable) else "A variable with an odd name"


_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,60}")


def is_telling(variable: str) -> bool:
    """Return whether a variable is in the table, so that a person has to see its whole value."""
    return _kind(variable) is not None


def _words(command: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command, split at spaces, up to the longest length."""
    left = _MAX_COMMAND
    for word in command:
        if left <= 0:
            return
        parts = word[:left].split()
        left -= len(word) + 1
        if len(parts) > 1:
            parts = [part.strip("\"'`;&|()") for part in parts]
        # env -S"sh -c ...": the text is a part of the option.
        yield from (_SPLIT_STRING.sub("", part) for part in parts)


_SPLIT_STRING = re.compile(r"^(?:-S|--split-string=)(?=.)")
_EXTENSION = re.compile(r"\.(?:exe|cmd|bat|com)$")
_VERSION = re.compile(r"(?<=[a-z])-?\d[\d.]*t?$")


def _program_warnings(words: Sequence[str]) -> Iterator[str]:
    seen: set[str] = set()
    for position, word in enumerate(words, 1):
        name = _EXTENSION.sub("", re.split(r"[/\\]", word)[-1].lower())
        name = _VERSION.sub("", name)
        for kind, patterns in _PROGRAMS.get(name, ()):
            if kind.before_script:
                rest = _options(words, position)
            elif name in seen:
                continue  # all words after it have been checked
            else:
                rest = words[position:]
            if patterns is None or any(patterns.fullmatch(each) for each in rest):
                yield kind.warning
        seen.add(name)


def _options(words: Sequence[str], start: int) -> Sequence[str]:
    """Return the options of an interpreter: the words before its script, which has its own."""
    end = start
    while end < len(words):
        word = words[end]
        if word == "-m" or not (word.startswith("-") or word == "eval"):
            break
        end += 2 if word in _WITH_VALUE else 1
    return words[start:end]


_WITH_VALUE = frozenset(
    {
        *("-W", "-X", "-I", "-C", "-r", "--require", "--import", "--loader", "--conditions"),
        *("--check-hash-based-pycs", "--title", "--env-file", "--experimental-loader"),
        *("--input-type", "--watch-path", "--disable-warning", "--openssl-config"),
        *("-d", "-l", "-E", "-L", "-J", "-cp", "-classpath", "--class-path", "-pa", "-pz"),
    }
)


def _patterns(names: Iterable[str]) -> re.Pattern[str] | None:
    texts = [translate(name) for name in names]
    return re.compile("|".join(texts), re.IGNORECASE) if texts else None


def _by_program() -> dict[str, list[tuple[Programs, re.Pattern[str] | None]]]:
    found: dict[str, list[tuple[Programs, re.Pattern[str] | None]]] = {}
    for kind in PROGRAMS:
        patterns = _patterns(kind.words)
        for name in kind.names:
            found.setdefault(name, []).append((kind, patterns))
    return found


_PROGRAMS = _by_program()
_VARIABLES = [(_patterns(kind.names), kind) for kind in VARIABLES]


def _kind(variable: str) -> Variables | None:
    for pattern, kind in _VARIABLES:
        if pattern is not None and pattern.fullmatch(variable):
            return kind
    return None
