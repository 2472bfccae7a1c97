#compdef visruntime
# Completion of visruntime for zsh. Made by scripts/generate_documents.py.
#
#   visruntime completion zsh > FOLDER/_visruntime      where FOLDER is in $fpath

_visruntime() {
    local -a commands
    commands=(
        'exec:Run a program in a jail; its streams and exit code are passed on'
        'run:Run Python in a jailed worker; it prints and exits as python would'
        'shell:Start an interactive shell in a jail'
        'why:Say whether a policy allows one act, by which rule, and what would change it'
        'doctor:Open real jails, try forbidden acts in them, and say what is enforced and by what'
        'tls:Ask a server for its certificates, from this host and outside of any jail, and say which rules of RFC 5280 they break and whether that is all that Python has against them'
        'schema:Print a JSON Schema (2020-12), for editors and programs'
        'worker:Print as JSON how a host in any language starts a jailed Python worker\: its command, the paths to grant, and its first frame'
        'bundle:Keep a CPython of the release for workers, apart from the system'\''s'
        'version:Say which visruntime this is; nothing is started'
        'completion:Print the completion of this command line for a shell; nothing is changed'
        'manual:Print the manual page, as man and groff read it'
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    # -S and -A: options of ours end at "--", and at the first word that is none.
    case $command in
    exec)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '*--policy=[start from this policy file (TOML)]:FILE:_files' \
            '*--read=[let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)]:P:_files' \
            '*--write=[let the guest read, execute and change P]:P:_files' \
            '*--deny=[close P inside a grant; the most specific path wins]:P:_files' \
            '*--deny-read=[as --deny: what cannot be read can be neither changed nor run]:P:_files' \
            '*--deny-write=[keep P as it is inside a --write]:P:_files' \
            '*--deny-exec=[keep P from being executed; no grant below lifts this]:P:_files' \
            '*--absent-deny=[what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing]:broker|wall|error:(broker wall error)' \
            '--strict-globs[refuse a --deny by a pattern that holds only for what exists now]' \
            '*--system=[which of the system it sees]:minimal|host|none:(minimal host none)' \
            '*--net=[its network; open is the host'\''s, its loopback services too]:off|proxy|open:(off proxy open)' \
            '*--allow=[for a later version; refused today]:HOST\[\:PORT\]: ' \
            '*--deny-host=[for a later version; refused today]:HOST: ' \
            '*--service=[for a later version; refused today]:NAME: ' \
            '*--inbound=[let HOSTPORT of your loopback lead to PORT of the guest'\''s; left out: any free one]:PORT\[\:HOSTPORT\]: ' \
            '*--host-port=[let the guest connect to PORT of your loopback]:PORT: ' \
            '*--socket=[let the guest connect to this AF_UNIX socket]:PATH:_files' \
            '*--sensitive-socket=[the same for one that acts in your name (an engine, a bus, a key agent)]:PATH:_files' \
            '*--reveal=[show P, which is hidden as a secret inside the grants (keys, .env and the like)]:P:_files' \
            '*--cache=[at P a folder of this policy'\''s own, kept for its next jails; not what you have there]:P:_files' \
            '*--env=[give the guest this variable, yours if no value is written]:NAME\[=VALUE\]: ' \
            '*--memory=[memory of all processes together; see --memory-by]:SIZE: ' \
            '*--file-size=[largest file that a guest can write]:SIZE: ' \
            '*--scratch=[room in the private /tmp, HOME and so on]:SIZE: ' \
            '*--output=[output kept of each stream]:SIZE: ' \
            '*--processes=[processes and threads at one time]:N: ' \
            '*--open-files=[open descriptors of each process]:N: ' \
            '*--cpu-seconds=[processor seconds of each process]:S: ' \
            '*--cpus=[processors'\'' worth of time, such as 1.5; needs a cgroup]:X: ' \
            '*--memory-by=[what bounds the memory: the sum by the kernel, the sum watched, or each process]:cgroup|watch|process:(cgroup watch process)' \
            '*--cwd=[where the guest starts]:DIR:_files -/' \
            '*--timeout=[kill everything after S seconds]:S: ' \
            '*--backend=[what builds the jail; auto takes the first that can enforce the policy]:auto|namespaces|bubblewrap|landlock:(auto namespaces bubblewrap landlock)' \
            '*--report=[write what enforced the policy, as JSON]:FILE:_files' \
            '--tty[give it a terminal of its own; its output then reaches yours as it is, control sequences included (they can change your clipboard or title)]' \
            '--no-tty[give it pipes; on a terminal, control characters in its output are shown as text]' \
            '*--pass-fd=[give it your descriptor N (3 to 15) under the same number; what it leads to is the guest'\''s then, whatever the policy says]:N: ' \
            '(-)*::command:_normal'
        ;;
    run)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '*--policy=[start from this policy file (TOML)]:FILE:_files' \
            '*--read=[let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)]:P:_files' \
            '*--write=[let the guest read, execute and change P]:P:_files' \
            '*--deny=[close P inside a grant; the most specific path wins]:P:_files' \
            '*--deny-read=[as --deny: what cannot be read can be neither changed nor run]:P:_files' \
            '*--deny-write=[keep P as it is inside a --write]:P:_files' \
            '*--deny-exec=[keep P from being executed; no grant below lifts this]:P:_files' \
            '*--absent-deny=[what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing]:broker|wall|error:(broker wall error)' \
            '--strict-globs[refuse a --deny by a pattern that holds only for what exists now]' \
            '*--system=[which of the system it sees]:minimal|host|none:(minimal host none)' \
            '*--net=[its network; open is the host'\''s, its loopback services too]:off|proxy|open:(off proxy open)' \
            '*--allow=[for a later version; refused today]:HOST\[\:PORT\]: ' \
            '*--deny-host=[for a later version; refused today]:HOST: ' \
            '*--service=[for a later version; refused today]:NAME: ' \
            '*--inbound=[let HOSTPORT of your loopback lead to PORT of the guest'\''s; left out: any free one]:PORT\[\:HOSTPORT\]: ' \
            '*--host-port=[let the guest connect to PORT of your loopback]:PORT: ' \
            '*--socket=[let the guest connect to this AF_UNIX socket]:PATH:_files' \
            '*--sensitive-socket=[the same for one that acts in your name (an engine, a bus, a key agent)]:PATH:_files' \
            '*--reveal=[show P, which is hidden as a secret inside the grants (keys, .env and the like)]:P:_files' \
            '*--cache=[at P a folder of this policy'\''s own, kept for its next jails; not what you have there]:P:_files' \
            '*--env=[give the guest this variable, yours if no value is written]:NAME\[=VALUE\]: ' \
            '*--memory=[memory of all processes together; see --memory-by]:SIZE: ' \
            '*--file-size=[largest file that a guest can write]:SIZE: ' \
            '*--scratch=[room in the private /tmp, HOME and so on]:SIZE: ' \
            '*--output=[output kept of each stream]:SIZE: ' \
            '*--processes=[processes and threads at one time]:N: ' \
            '*--open-files=[open descriptors of each process]:N: ' \
            '*--cpu-seconds=[processor seconds of each process]:S: ' \
            '*--cpus=[processors'\'' worth of time, such as 1.5; needs a cgroup]:X: ' \
            '*--memory-by=[what bounds the memory: the sum by the kernel, the sum watched, or each process]:cgroup|watch|process:(cgroup watch process)' \
            '*--cwd=[where the guest starts]:DIR:_files -/' \
            '*--timeout=[kill everything after S seconds]:S: ' \
            '*--backend=[what builds the jail; auto takes the first that can enforce the policy]:auto|namespaces|bubblewrap|landlock:(auto namespaces bubblewrap landlock)' \
            '*--report=[write what enforced the policy, as JSON]:FILE:_files' \
            '*--python=[the interpreter, instead of this one]:PATH:_files' \
            '*--project=[have the packages of DIR/uv.lock, built by uv]:DIR:_files -/' \
            '*--with=[a package to have, such as '\''requests>=2'\'']:REQUIREMENT: ' \
            '*--extra=[with --project: optional dependencies to have too]:NAME: ' \
            '*--group=[with --project: a dependency group to have too, such as dev]:NAME: ' \
            '*--wheelhouse=[take packages from this folder of wheels]:DIR:_files -/' \
            '*--index=[let the build of packages reach this index; without, it has no network]:default|URL:(default)' \
            '*--hashes=[resolve takes missing hashes from the wheelhouse or index, once; so do --with and a script'\''s metadata]:required|resolve:(required resolve)' \
            '--allow-builds[take packages without wheels too: their code runs in the jail of the build]' \
            '--quiet[say nothing of what is built, on a terminal neither]' \
            '--tls-lenient[accept authorities that break RFC 5280, as Python did before 3.13; see doc/tls.md]' \
            '*--ca=[the certificate authorities (PEM) that Python and other programs are to trust]:FILE|system:{_alternative "words:word:(system)" "files:file:_files"}' \
            '--no-processes[let it start no other process; a system call filter holds that, threads are let]' \
            '--no-ctypes[refuse it ctypes; the audit hook does, which shows mistakes and is no wall]' \
            '*--native-modules=[from where it loads machine code: only what it cannot write (the default), or also what it has just built; by the audit hook, as above]:read-only|anywhere:(read-only anywhere)' \
            '*:file:_files'
        ;;
    shell)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '*--policy=[start from this policy file (TOML)]:FILE:_files' \
            '*--read=[let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)]:P:_files' \
            '*--write=[let the guest read, execute and change P]:P:_files' \
            '*--deny=[close P inside a grant; the most specific path wins]:P:_files' \
            '*--deny-read=[as --deny: what cannot be read can be neither changed nor run]:P:_files' \
            '*--deny-write=[keep P as it is inside a --write]:P:_files' \
            '*--deny-exec=[keep P from being executed; no grant below lifts this]:P:_files' \
            '*--absent-deny=[what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing]:broker|wall|error:(broker wall error)' \
            '--strict-globs[refuse a --deny by a pattern that holds only for what exists now]' \
            '*--system=[which of the system it sees]:minimal|host|none:(minimal host none)' \
            '*--net=[its network; open is the host'\''s, its loopback services too]:off|proxy|open:(off proxy open)' \
            '*--allow=[for a later version; refused today]:HOST\[\:PORT\]: ' \
            '*--deny-host=[for a later version; refused today]:HOST: ' \
            '*--service=[for a later version; refused today]:NAME: ' \
            '*--inbound=[let HOSTPORT of your loopback lead to PORT of the guest'\''s; left out: any free one]:PORT\[\:HOSTPORT\]: ' \
            '*--host-port=[let the guest connect to PORT of your loopback]:PORT: ' \
            '*--socket=[let the guest connect to this AF_UNIX socket]:PATH:_files' \
            '*--sensitive-socket=[the same for one that acts in your name (an engine, a bus, a key agent)]:PATH:_files' \
            '*--reveal=[show P, which is hidden as a secret inside the grants (keys, .env and the like)]:P:_files' \
            '*--cache=[at P a folder of this policy'\''s own, kept for its next jails; not what you have there]:P:_files' \
            '*--env=[give the guest this variable, yours if no value is written]:NAME\[=VALUE\]: ' \
            '*--memory=[memory of all processes together; see --memory-by]:SIZE: ' \
            '*--file-size=[largest file that a guest can write]:SIZE: ' \
            '*--scratch=[room in the private /tmp, HOME and so on]:SIZE: ' \
            '*--output=[output kept of each stream]:SIZE: ' \
            '*--processes=[processes and threads at one time]:N: ' \
            '*--open-files=[open descriptors of each process]:N: ' \
            '*--cpu-seconds=[processor seconds of each process]:S: ' \
            '*--cpus=[processors'\'' worth of time, such as 1.5; needs a cgroup]:X: ' \
            '*--memory-by=[what bounds the memory: the sum by the kernel, the sum watched, or each process]:cgroup|watch|process:(cgroup watch process)' \
            '*--cwd=[where the guest starts]:DIR:_files -/' \
            '*--timeout=[kill everything after S seconds]:S: ' \
            '*--backend=[what builds the jail; auto takes the first that can enforce the policy]:auto|namespaces|bubblewrap|landlock:(auto namespaces bubblewrap landlock)' \
            '*--report=[write what enforced the policy, as JSON]:FILE:_files'
        ;;
    why)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '*--policy=[start from this policy file (TOML)]:FILE:_files' \
            '*--read=[let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)]:P:_files' \
            '*--write=[let the guest read, execute and change P]:P:_files' \
            '*--deny=[close P inside a grant; the most specific path wins]:P:_files' \
            '*--deny-read=[as --deny: what cannot be read can be neither changed nor run]:P:_files' \
            '*--deny-write=[keep P as it is inside a --write]:P:_files' \
            '*--deny-exec=[keep P from being executed; no grant below lifts this]:P:_files' \
            '*--absent-deny=[what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing]:broker|wall|error:(broker wall error)' \
            '--strict-globs[refuse a --deny by a pattern that holds only for what exists now]' \
            '*--system=[which of the system it sees]:minimal|host|none:(minimal host none)' \
            '*--net=[its network; open is the host'\''s, its loopback services too]:off|proxy|open:(off proxy open)' \
            '*--allow=[for a later version; refused today]:HOST\[\:PORT\]: ' \
            '*--deny-host=[for a later version; refused today]:HOST: ' \
            '*--service=[for a later version; refused today]:NAME: ' \
            '*--inbound=[let HOSTPORT of your loopback lead to PORT of the guest'\''s; left out: any free one]:PORT\[\:HOSTPORT\]: ' \
            '*--host-port=[let the guest connect to PORT of your loopback]:PORT: ' \
            '*--socket=[let the guest connect to this AF_UNIX socket]:PATH:_files' \
            '*--sensitive-socket=[the same for one that acts in your name (an engine, a bus, a key agent)]:PATH:_files' \
            '*--reveal=[show P, which is hidden as a secret inside the grants (keys, .env and the like)]:P:_files' \
            '*--cache=[at P a folder of this policy'\''s own, kept for its next jails; not what you have there]:P:_files' \
            '*--env=[give the guest this variable, yours if no value is written]:NAME\[=VALUE\]: ' \
            '*--memory=[memory of all processes together; see --memory-by]:SIZE: ' \
            '*--file-size=[largest file that a guest can write]:SIZE: ' \
            '*--scratch=[room in the private /tmp, HOME and so on]:SIZE: ' \
            '*--output=[output kept of each stream]:SIZE: ' \
            '*--processes=[processes and threads at one time]:N: ' \
            '*--open-files=[open descriptors of each process]:N: ' \
            '*--cpu-seconds=[processor seconds of each process]:S: ' \
            '*--cpus=[processors'\'' worth of time, such as 1.5; needs a cgroup]:X: ' \
            '*--memory-by=[what bounds the memory: the sum by the kernel, the sum watched, or each process]:cgroup|watch|process:(cgroup watch process)' \
            '1:what:(read write exec connect)' \
            '*:file:_files'
        ;;
    doctor)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '--json[print the findings as JSON]' \
            '*--html=[also write them as one page without scripts]:FILE:_files' \
            '--apparmor[try nothing; print an AppArmor profile that lets this installation open jails]' \
            '--confinement[try known ways out of a jail in a Python worker, and say which layer stopped each; as a control each is also tried WITHOUT a jail, with your rights, on files made for it]' \
            '*--python=[interpreter of both workers: it runs without a jail too, so name only one that you trust]:PATH:_files'
        ;;
    tls)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '*--ca=[trust these authorities (PEM)]:FILE|system:{_alternative "words:word:(system)" "files:file:_files"}' \
            '*--timeout=[give up after S seconds]:S: ' \
            '1:what:(explain)'
        ;;
    schema)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '1:what:(policy report doctor confinement)'
        ;;
    worker)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '*--python=[the interpreter, instead of this one]:PATH:_files' \
            '*--environment=[the interpreter and packages of this venv]:DIR:_files -/'
        ;;
    bundle)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '*--sha256=[refuse an archive that is not the one published with it]:DIGEST: ' \
            '--quiet[say nothing of what went well, on a terminal neither]' \
            '1:what:(install list verify)' \
            '*:file:_files'
        ;;
    version)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '--json[print one JSON object]'
        ;;
    completion)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]' \
            '1:what:(bash zsh fish)'
        ;;
    manual)
        _arguments -S -A '-*' \
            '-h[show this help message and exit]' \
            '--help[show this help message and exit]'
        ;;
    esac
}

if [[ $funcstack[1] == _visruntime ]]; then
    _visruntime "$@"
else
    compdef _visruntime visruntime
fi
