# Completion of visruntime for fish. Made by scripts/generate_documents.py.
#
#   visruntime completion fish > ~/.config/fish/completions/visruntime.fish

# Print the sub-command, and the number of words behind our options: those end at "--", and at
# the first word that is none.
function __visruntime_place
    set -l words (commandline -opc)
    set -l command $words[2]
    set -l valued
    switch "$command"
        case exec
            set valued --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report --pass-fd
        case run
            set valued --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report --python --project --with --extra --group --wheelhouse --index --hashes --ca --native-modules
        case shell
            set valued --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report
        case why
            set valued --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by
        case doctor
            set valued --html --python
        case tls
            set valued --ca --timeout
        case worker
            set valued --python --environment
        case bundle
            set valued --sha256
    end
    set -e words[1..2]
    while set -q words[1]
        if test "$words[1]" = --
            set -e words[1]
            echo "$command" (math (count $words) + 1)
            return
        else if not string match -q -- '--*' "$words[1]"; and test "$words[1]" != -h
            break
        else if contains -- "$words[1]" $valued
            set -e words[1]
        end
        set -e words[1]
    end
    echo "$command" (count $words)
end

# Whether the word in question may be an option of the sub-command $argv[1].
function __visruntime_option
    test (__visruntime_place) = "$argv[1] 0"
end

# Whether it is the operand of the sub-command $argv[1] before which $argv[2] others stand, at least.
function __visruntime_operand
    set -l place (string split ' ' (__visruntime_place))
    test "$place[1]" = "$argv[1]"
    and test $place[2] -ge $argv[2]
end

complete -c visruntime -f
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a exec -d 'Run a program in a jail; its streams and exit code are passed on'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a run -d 'Run Python in a jailed worker; it prints and exits as python would'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a shell -d 'Start an interactive shell in a jail'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a why -d 'Say whether a policy allows one act, by which rule, and what would change it'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a doctor -d 'Open real jails, try forbidden acts in them, and say what is enforced and by what'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a tls -d 'Ask a server for its certificates, from this host and outside of any jail, and say which rules of RFC 5280 they break and whether that is all that Python has against them'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a schema -d 'Print a JSON Schema (2020-12), for editors and programs'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a worker -d 'Print as JSON how a host in any language starts a jailed Python worker: its command, the paths to grant, and its first frame'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a bundle -d 'Keep a CPython of the release for workers, apart from the system\'s'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a version -d 'Say which visruntime this is; nothing is started'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a completion -d 'Print the completion of this command line for a shell; nothing is changed'
complete -c visruntime -n 'test (count (commandline -opc)) -eq 1' -a manual -d 'Print the manual page, as man and groff read it'

# exec
complete -c visruntime -n '__visruntime_option exec' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option exec' -l policy -rF -d 'start from this policy file (TOML)'
complete -c visruntime -n '__visruntime_option exec' -l read -rF -d 'let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)'
complete -c visruntime -n '__visruntime_option exec' -l write -rF -d 'let the guest read, execute and change P'
complete -c visruntime -n '__visruntime_option exec' -l deny -rF -d 'close P inside a grant; the most specific path wins'
complete -c visruntime -n '__visruntime_option exec' -l deny-read -rF -d 'as --deny: what cannot be read can be neither changed nor run'
complete -c visruntime -n '__visruntime_option exec' -l deny-write -rF -d 'keep P as it is inside a --write'
complete -c visruntime -n '__visruntime_option exec' -l deny-exec -rF -d 'keep P from being executed; no grant below lifts this'
complete -c visruntime -n '__visruntime_option exec' -l absent-deny -x -a 'broker wall error' -d 'what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing'
complete -c visruntime -n '__visruntime_option exec' -l strict-globs -d 'refuse a --deny by a pattern that holds only for what exists now'
complete -c visruntime -n '__visruntime_option exec' -l system -x -a 'minimal host none' -d 'which of the system it sees'
complete -c visruntime -n '__visruntime_option exec' -l net -x -a 'off proxy open' -d 'its network; open is the host\'s, its loopback services too'
complete -c visruntime -n '__visruntime_option exec' -l allow -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option exec' -l deny-host -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option exec' -l service -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option exec' -l inbound -x -d 'let HOSTPORT of your loopback lead to PORT of the guest\'s; left out: any free one'
complete -c visruntime -n '__visruntime_option exec' -l host-port -x -d 'let the guest connect to PORT of your loopback'
complete -c visruntime -n '__visruntime_option exec' -l socket -rF -d 'let the guest connect to this AF_UNIX socket'
complete -c visruntime -n '__visruntime_option exec' -l sensitive-socket -rF -d 'the same for one that acts in your name (an engine, a bus, a key agent)'
complete -c visruntime -n '__visruntime_option exec' -l reveal -rF -d 'show P, which is hidden as a secret inside the grants (keys, .env and the like)'
complete -c visruntime -n '__visruntime_option exec' -l cache -rF -d 'at P a folder of this policy\'s own, kept for its next jails; not what you have there'
complete -c visruntime -n '__visruntime_option exec' -l env -x -d 'give the guest this variable, yours if no value is written'
complete -c visruntime -n '__visruntime_option exec' -l memory -x -d 'memory of all processes together; see --memory-by'
complete -c visruntime -n '__visruntime_option exec' -l file-size -x -d 'largest file that a guest can write'
complete -c visruntime -n '__visruntime_option exec' -l scratch -x -d 'room in the private /tmp, HOME and so on'
complete -c visruntime -n '__visruntime_option exec' -l output -x -d 'output kept of each stream'
complete -c visruntime -n '__visruntime_option exec' -l processes -x -d 'processes and threads at one time'
complete -c visruntime -n '__visruntime_option exec' -l open-files -x -d 'open descriptors of each process'
complete -c visruntime -n '__visruntime_option exec' -l cpu-seconds -x -d 'processor seconds of each process'
complete -c visruntime -n '__visruntime_option exec' -l cpus -x -d 'processors\' worth of time, such as 1.5; needs a cgroup'
complete -c visruntime -n '__visruntime_option exec' -l memory-by -x -a 'cgroup watch process' -d 'what bounds the memory: the sum by the kernel, the sum watched, or each process'
complete -c visruntime -n '__visruntime_option exec' -l cwd -x -a '(__fish_complete_directories)' -d 'where the guest starts'
complete -c visruntime -n '__visruntime_option exec' -l timeout -x -d 'kill everything after S seconds'
complete -c visruntime -n '__visruntime_option exec' -l backend -x -a 'auto namespaces bubblewrap landlock' -d 'what builds the jail; auto takes the first that can enforce the policy'
complete -c visruntime -n '__visruntime_option exec' -l report -rF -d 'write what enforced the policy, as JSON'
complete -c visruntime -n '__visruntime_option exec' -l tty -d 'give it a terminal of its own; its output then reaches yours as it is, control sequences included (they can change your clipboard or title)'
complete -c visruntime -n '__visruntime_option exec' -l no-tty -d 'give it pipes; on a terminal, control characters in its output are shown as text'
complete -c visruntime -n '__visruntime_option exec' -l pass-fd -x -d 'give it your descriptor N (3 to 15) under the same number; what it leads to is the guest\'s then, whatever the policy says'
complete -c visruntime -n '__visruntime_operand exec 0' -a '(__fish_complete_command)'
complete -c visruntime -n '__visruntime_operand exec 1' -F

# run
complete -c visruntime -n '__visruntime_option run' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option run' -l policy -rF -d 'start from this policy file (TOML)'
complete -c visruntime -n '__visruntime_option run' -l read -rF -d 'let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)'
complete -c visruntime -n '__visruntime_option run' -l write -rF -d 'let the guest read, execute and change P'
complete -c visruntime -n '__visruntime_option run' -l deny -rF -d 'close P inside a grant; the most specific path wins'
complete -c visruntime -n '__visruntime_option run' -l deny-read -rF -d 'as --deny: what cannot be read can be neither changed nor run'
complete -c visruntime -n '__visruntime_option run' -l deny-write -rF -d 'keep P as it is inside a --write'
complete -c visruntime -n '__visruntime_option run' -l deny-exec -rF -d 'keep P from being executed; no grant below lifts this'
complete -c visruntime -n '__visruntime_option run' -l absent-deny -x -a 'broker wall error' -d 'what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing'
complete -c visruntime -n '__visruntime_option run' -l strict-globs -d 'refuse a --deny by a pattern that holds only for what exists now'
complete -c visruntime -n '__visruntime_option run' -l system -x -a 'minimal host none' -d 'which of the system it sees'
complete -c visruntime -n '__visruntime_option run' -l net -x -a 'off proxy open' -d 'its network; open is the host\'s, its loopback services too'
complete -c visruntime -n '__visruntime_option run' -l allow -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option run' -l deny-host -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option run' -l service -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option run' -l inbound -x -d 'let HOSTPORT of your loopback lead to PORT of the guest\'s; left out: any free one'
complete -c visruntime -n '__visruntime_option run' -l host-port -x -d 'let the guest connect to PORT of your loopback'
complete -c visruntime -n '__visruntime_option run' -l socket -rF -d 'let the guest connect to this AF_UNIX socket'
complete -c visruntime -n '__visruntime_option run' -l sensitive-socket -rF -d 'the same for one that acts in your name (an engine, a bus, a key agent)'
complete -c visruntime -n '__visruntime_option run' -l reveal -rF -d 'show P, which is hidden as a secret inside the grants (keys, .env and the like)'
complete -c visruntime -n '__visruntime_option run' -l cache -rF -d 'at P a folder of this policy\'s own, kept for its next jails; not what you have there'
complete -c visruntime -n '__visruntime_option run' -l env -x -d 'give the guest this variable, yours if no value is written'
complete -c visruntime -n '__visruntime_option run' -l memory -x -d 'memory of all processes together; see --memory-by'
complete -c visruntime -n '__visruntime_option run' -l file-size -x -d 'largest file that a guest can write'
complete -c visruntime -n '__visruntime_option run' -l scratch -x -d 'room in the private /tmp, HOME and so on'
complete -c visruntime -n '__visruntime_option run' -l output -x -d 'output kept of each stream'
complete -c visruntime -n '__visruntime_option run' -l processes -x -d 'processes and threads at one time'
complete -c visruntime -n '__visruntime_option run' -l open-files -x -d 'open descriptors of each process'
complete -c visruntime -n '__visruntime_option run' -l cpu-seconds -x -d 'processor seconds of each process'
complete -c visruntime -n '__visruntime_option run' -l cpus -x -d 'processors\' worth of time, such as 1.5; needs a cgroup'
complete -c visruntime -n '__visruntime_option run' -l memory-by -x -a 'cgroup watch process' -d 'what bounds the memory: the sum by the kernel, the sum watched, or each process'
complete -c visruntime -n '__visruntime_option run' -l cwd -x -a '(__fish_complete_directories)' -d 'where the guest starts'
complete -c visruntime -n '__visruntime_option run' -l timeout -x -d 'kill everything after S seconds'
complete -c visruntime -n '__visruntime_option run' -l backend -x -a 'auto namespaces bubblewrap landlock' -d 'what builds the jail; auto takes the first that can enforce the policy'
complete -c visruntime -n '__visruntime_option run' -l report -rF -d 'write what enforced the policy, as JSON'
complete -c visruntime -n '__visruntime_option run' -l python -rF -d 'the interpreter, instead of this one'
complete -c visruntime -n '__visruntime_option run' -l project -x -a '(__fish_complete_directories)' -d 'have the packages of DIR/uv.lock, built by uv'
complete -c visruntime -n '__visruntime_option run' -l with -x -d 'a package to have, such as \'requests>=2\''
complete -c visruntime -n '__visruntime_option run' -l extra -x -d 'with --project: optional dependencies to have too'
complete -c visruntime -n '__visruntime_option run' -l group -x -d 'with --project: a dependency group to have too, such as dev'
complete -c visruntime -n '__visruntime_option run' -l wheelhouse -x -a '(__fish_complete_directories)' -d 'take packages from this folder of wheels'
complete -c visruntime -n '__visruntime_option run' -l index -x -a 'default' -d 'let the build of packages reach this index; without, it has no network'
complete -c visruntime -n '__visruntime_option run' -l hashes -x -a 'required resolve' -d 'resolve takes missing hashes from the wheelhouse or index, once; so do --with and a script\'s metadata'
complete -c visruntime -n '__visruntime_option run' -l allow-builds -d 'take packages without wheels too: their code runs in the jail of the build'
complete -c visruntime -n '__visruntime_option run' -l quiet -d 'say nothing of what is built, on a terminal neither'
complete -c visruntime -n '__visruntime_option run' -l tls-lenient -d 'accept authorities that break RFC 5280, as Python did before 3.13; see doc/tls.md'
complete -c visruntime -n '__visruntime_option run' -l ca -rF -a 'system' -d 'the certificate authorities (PEM) that Python and other programs are to trust'
complete -c visruntime -n '__visruntime_option run' -l no-processes -d 'let it start no other process; a system call filter holds that, threads are let'
complete -c visruntime -n '__visruntime_option run' -l no-ctypes -d 'refuse it ctypes; the audit hook does, which shows mistakes and is no wall'
complete -c visruntime -n '__visruntime_option run' -l native-modules -x -a 'read-only anywhere' -d 'from where it loads machine code: only what it cannot write (the default), or also what it has just built; by the audit hook, as above'
complete -c visruntime -n '__visruntime_operand run 0' -F

# shell
complete -c visruntime -n '__visruntime_option shell' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option shell' -l policy -rF -d 'start from this policy file (TOML)'
complete -c visruntime -n '__visruntime_option shell' -l read -rF -d 'let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)'
complete -c visruntime -n '__visruntime_option shell' -l write -rF -d 'let the guest read, execute and change P'
complete -c visruntime -n '__visruntime_option shell' -l deny -rF -d 'close P inside a grant; the most specific path wins'
complete -c visruntime -n '__visruntime_option shell' -l deny-read -rF -d 'as --deny: what cannot be read can be neither changed nor run'
complete -c visruntime -n '__visruntime_option shell' -l deny-write -rF -d 'keep P as it is inside a --write'
complete -c visruntime -n '__visruntime_option shell' -l deny-exec -rF -d 'keep P from being executed; no grant below lifts this'
complete -c visruntime -n '__visruntime_option shell' -l absent-deny -x -a 'broker wall error' -d 'what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing'
complete -c visruntime -n '__visruntime_option shell' -l strict-globs -d 'refuse a --deny by a pattern that holds only for what exists now'
complete -c visruntime -n '__visruntime_option shell' -l system -x -a 'minimal host none' -d 'which of the system it sees'
complete -c visruntime -n '__visruntime_option shell' -l net -x -a 'off proxy open' -d 'its network; open is the host\'s, its loopback services too'
complete -c visruntime -n '__visruntime_option shell' -l allow -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option shell' -l deny-host -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option shell' -l service -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option shell' -l inbound -x -d 'let HOSTPORT of your loopback lead to PORT of the guest\'s; left out: any free one'
complete -c visruntime -n '__visruntime_option shell' -l host-port -x -d 'let the guest connect to PORT of your loopback'
complete -c visruntime -n '__visruntime_option shell' -l socket -rF -d 'let the guest connect to this AF_UNIX socket'
complete -c visruntime -n '__visruntime_option shell' -l sensitive-socket -rF -d 'the same for one that acts in your name (an engine, a bus, a key agent)'
complete -c visruntime -n '__visruntime_option shell' -l reveal -rF -d 'show P, which is hidden as a secret inside the grants (keys, .env and the like)'
complete -c visruntime -n '__visruntime_option shell' -l cache -rF -d 'at P a folder of this policy\'s own, kept for its next jails; not what you have there'
complete -c visruntime -n '__visruntime_option shell' -l env -x -d 'give the guest this variable, yours if no value is written'
complete -c visruntime -n '__visruntime_option shell' -l memory -x -d 'memory of all processes together; see --memory-by'
complete -c visruntime -n '__visruntime_option shell' -l file-size -x -d 'largest file that a guest can write'
complete -c visruntime -n '__visruntime_option shell' -l scratch -x -d 'room in the private /tmp, HOME and so on'
complete -c visruntime -n '__visruntime_option shell' -l output -x -d 'output kept of each stream'
complete -c visruntime -n '__visruntime_option shell' -l processes -x -d 'processes and threads at one time'
complete -c visruntime -n '__visruntime_option shell' -l open-files -x -d 'open descriptors of each process'
complete -c visruntime -n '__visruntime_option shell' -l cpu-seconds -x -d 'processor seconds of each process'
complete -c visruntime -n '__visruntime_option shell' -l cpus -x -d 'processors\' worth of time, such as 1.5; needs a cgroup'
complete -c visruntime -n '__visruntime_option shell' -l memory-by -x -a 'cgroup watch process' -d 'what bounds the memory: the sum by the kernel, the sum watched, or each process'
complete -c visruntime -n '__visruntime_option shell' -l cwd -x -a '(__fish_complete_directories)' -d 'where the guest starts'
complete -c visruntime -n '__visruntime_option shell' -l timeout -x -d 'kill everything after S seconds'
complete -c visruntime -n '__visruntime_option shell' -l backend -x -a 'auto namespaces bubblewrap landlock' -d 'what builds the jail; auto takes the first that can enforce the policy'
complete -c visruntime -n '__visruntime_option shell' -l report -rF -d 'write what enforced the policy, as JSON'

# why
complete -c visruntime -n '__visruntime_option why' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option why' -l policy -rF -d 'start from this policy file (TOML)'
complete -c visruntime -n '__visruntime_option why' -l read -rF -d 'let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)'
complete -c visruntime -n '__visruntime_option why' -l write -rF -d 'let the guest read, execute and change P'
complete -c visruntime -n '__visruntime_option why' -l deny -rF -d 'close P inside a grant; the most specific path wins'
complete -c visruntime -n '__visruntime_option why' -l deny-read -rF -d 'as --deny: what cannot be read can be neither changed nor run'
complete -c visruntime -n '__visruntime_option why' -l deny-write -rF -d 'keep P as it is inside a --write'
complete -c visruntime -n '__visruntime_option why' -l deny-exec -rF -d 'keep P from being executed; no grant below lifts this'
complete -c visruntime -n '__visruntime_option why' -l absent-deny -x -a 'broker wall error' -d 'what holds a --deny-write of what does not exist: broker, which makes other names for the guest; wall, which lets no new name be made around it; or nothing'
complete -c visruntime -n '__visruntime_option why' -l strict-globs -d 'refuse a --deny by a pattern that holds only for what exists now'
complete -c visruntime -n '__visruntime_option why' -l system -x -a 'minimal host none' -d 'which of the system it sees'
complete -c visruntime -n '__visruntime_option why' -l net -x -a 'off proxy open' -d 'its network; open is the host\'s, its loopback services too'
complete -c visruntime -n '__visruntime_option why' -l allow -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option why' -l deny-host -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option why' -l service -x -d 'for a later version; refused today'
complete -c visruntime -n '__visruntime_option why' -l inbound -x -d 'let HOSTPORT of your loopback lead to PORT of the guest\'s; left out: any free one'
complete -c visruntime -n '__visruntime_option why' -l host-port -x -d 'let the guest connect to PORT of your loopback'
complete -c visruntime -n '__visruntime_option why' -l socket -rF -d 'let the guest connect to this AF_UNIX socket'
complete -c visruntime -n '__visruntime_option why' -l sensitive-socket -rF -d 'the same for one that acts in your name (an engine, a bus, a key agent)'
complete -c visruntime -n '__visruntime_option why' -l reveal -rF -d 'show P, which is hidden as a secret inside the grants (keys, .env and the like)'
complete -c visruntime -n '__visruntime_option why' -l cache -rF -d 'at P a folder of this policy\'s own, kept for its next jails; not what you have there'
complete -c visruntime -n '__visruntime_option why' -l env -x -d 'give the guest this variable, yours if no value is written'
complete -c visruntime -n '__visruntime_option why' -l memory -x -d 'memory of all processes together; see --memory-by'
complete -c visruntime -n '__visruntime_option why' -l file-size -x -d 'largest file that a guest can write'
complete -c visruntime -n '__visruntime_option why' -l scratch -x -d 'room in the private /tmp, HOME and so on'
complete -c visruntime -n '__visruntime_option why' -l output -x -d 'output kept of each stream'
complete -c visruntime -n '__visruntime_option why' -l processes -x -d 'processes and threads at one time'
complete -c visruntime -n '__visruntime_option why' -l open-files -x -d 'open descriptors of each process'
complete -c visruntime -n '__visruntime_option why' -l cpu-seconds -x -d 'processor seconds of each process'
complete -c visruntime -n '__visruntime_option why' -l cpus -x -d 'processors\' worth of time, such as 1.5; needs a cgroup'
complete -c visruntime -n '__visruntime_option why' -l memory-by -x -a 'cgroup watch process' -d 'what bounds the memory: the sum by the kernel, the sum watched, or each process'
complete -c visruntime -n '__visruntime_option why' -a 'read write exec connect'
complete -c visruntime -n '__visruntime_operand why 1' -F

# doctor
complete -c visruntime -n '__visruntime_option doctor' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option doctor' -l json -d 'print the findings as JSON'
complete -c visruntime -n '__visruntime_option doctor' -l html -rF -d 'also write them as one page without scripts'
complete -c visruntime -n '__visruntime_option doctor' -l apparmor -d 'try nothing; print an AppArmor profile that lets this installation open jails'
complete -c visruntime -n '__visruntime_option doctor' -l confinement -d 'try known ways out of a jail in a Python worker, and say which layer stopped each; as a control each is also tried WITHOUT a jail, with your rights, on files made for it'
complete -c visruntime -n '__visruntime_option doctor' -l python -rF -d 'interpreter of both workers: it runs without a jail too, so name only one that you trust'

# tls
complete -c visruntime -n '__visruntime_option tls' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option tls' -l ca -rF -a 'system' -d 'trust these authorities (PEM)'
complete -c visruntime -n '__visruntime_option tls' -l timeout -x -d 'give up after S seconds'
complete -c visruntime -n '__visruntime_option tls' -a 'explain'

# schema
complete -c visruntime -n '__visruntime_option schema' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option schema' -a 'policy report doctor confinement'

# worker
complete -c visruntime -n '__visruntime_option worker' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option worker' -l python -rF -d 'the interpreter, instead of this one'
complete -c visruntime -n '__visruntime_option worker' -l environment -x -a '(__fish_complete_directories)' -d 'the interpreter and packages of this venv'

# bundle
complete -c visruntime -n '__visruntime_option bundle' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option bundle' -l sha256 -x -d 'refuse an archive that is not the one published with it'
complete -c visruntime -n '__visruntime_option bundle' -l quiet -d 'say nothing of what went well, on a terminal neither'
complete -c visruntime -n '__visruntime_option bundle' -a 'install list verify'
complete -c visruntime -n '__visruntime_operand bundle 1' -F

# version
complete -c visruntime -n '__visruntime_option version' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option version' -l json -d 'print one JSON object'

# completion
complete -c visruntime -n '__visruntime_option completion' -s h -l help -d 'show this help message and exit'
complete -c visruntime -n '__visruntime_option completion' -a 'bash zsh fish'

# manual
complete -c visruntime -n '__visruntime_option manual' -s h -l help -d 'show this help message and exit'
