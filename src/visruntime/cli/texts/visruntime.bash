# Completion of visruntime for bash. Made by scripts/generate_documents.py.
#
#   source <(visruntime completion bash)

# Offer what compgen finds, as it is: a name may hold blanks and patterns.
_visruntime_offer() {
    local found
    mapfile -t found < <(compgen "$@")
    COMPREPLY+=("${found[@]}")
}

# Offer the files that begin like $1; with $2 -d, folders only.
_visruntime_files() {
    compopt -o filenames 2>/dev/null
    _visruntime_offer "${2:--f}" -- "$1"
}

_visruntime() {
    local current=$2 command=${COMP_WORDS[1]-} options="" valued="" verbs="" operands="nothing"
    local option="" place=2 word
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _visruntime_offer -W "exec run shell why doctor tls schema worker bundle version completion manual" -- "$current"
        return
    fi
    case $command in
    exec)
        options="-h --help --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --strict-globs --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report --tty --no-tty --pass-fd"
        valued="--policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report --pass-fd"
        operands="command"
        ;;
    run)
        options="-h --help --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --strict-globs --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report --python --project --with --extra --group --wheelhouse --index --hashes --allow-builds --quiet --tls-lenient --ca --no-processes --no-ctypes --native-modules"
        valued="--policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report --python --project --with --extra --group --wheelhouse --index --hashes --ca --native-modules"
        operands="file"
        ;;
    shell)
        options="-h --help --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --strict-globs --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report"
        valued="--policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by --cwd --timeout --backend --report"
        ;;
    why)
        options="-h --help --policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --strict-globs --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by"
        valued="--policy --read --write --deny --deny-read --deny-write --deny-exec --absent-deny --system --net --allow --deny-host --service --inbound --host-port --socket --sensitive-socket --reveal --cache --env --memory --file-size --scratch --output --processes --open-files --cpu-seconds --cpus --memory-by"
        verbs="read write exec connect"
        operands="file"
        ;;
    doctor)
        options="-h --help --json --html --apparmor --confinement --python"
        valued="--html --python"
        ;;
    tls)
        options="-h --help --ca --timeout"
        valued="--ca --timeout"
        verbs="explain"
        ;;
    schema)
        options="-h --help"
        verbs="policy report doctor confinement"
        ;;
    worker)
        options="-h --help --python --environment"
        valued="--python --environment"
        ;;
    bundle)
        options="-h --help --sha256 --quiet"
        valued="--sha256"
        verbs="install list verify"
        operands="file"
        ;;
    version)
        options="-h --help --json"
        ;;
    completion)
        options="-h --help"
        verbs="bash zsh fish"
        ;;
    manual)
        options="-h --help"
        ;;
    *) return ;;
    esac
    # Options of ours end at "--", and at the first word that is none.
    while ((place < COMP_CWORD)); do
        word=${COMP_WORDS[place]}
        if [[ $word == -- ]]; then
            ((place++))
            options=""
            break
        elif [[ $word != --* && $word != -h ]]; then
            options=""
            break
        elif [[ ${COMP_WORDS[place + 1]-} == = ]]; then # bash takes --option=value apart
            option=$word
            ((place += 3))
        elif [[ " $valued " == *" $word "* ]]; then
            option=$word
            ((place += 2))
        else
            option=""
            ((place++))
        fi
    done
    if ((place > COMP_CWORD)); then # the value of an option
        [[ $current == = ]] && current=""
        case $command/$option in
        */--policy | */--read | */--write | */--deny | */--deny-read | */--deny-write | */--deny-exec | */--socket | */--sensitive-socket | */--reveal | */--cache | */--report | */--python | */--html) _visruntime_files "$current" ;;
        */--absent-deny) _visruntime_offer -W "broker wall error" -- "$current" ;;
        */--system) _visruntime_offer -W "minimal host none" -- "$current" ;;
        */--net) _visruntime_offer -W "off proxy open" -- "$current" ;;
        */--memory-by) _visruntime_offer -W "cgroup watch process" -- "$current" ;;
        */--cwd | */--project | */--wheelhouse | */--environment) _visruntime_files "$current" -d ;;
        */--backend) _visruntime_offer -W "auto namespaces bubblewrap landlock" -- "$current" ;;
        */--index) _visruntime_offer -W "default" -- "$current" ;;
        */--hashes) _visruntime_offer -W "required resolve" -- "$current" ;;
        */--ca) _visruntime_offer -W "system" -- "$current"; _visruntime_files "$current" ;;
        */--native-modules) _visruntime_offer -W "read-only anywhere" -- "$current" ;;
        esac
        return
    fi
    if [[ $options && $current == -* ]]; then
        _visruntime_offer -W "$options" -- "$current"
        return
    fi
    if [[ $verbs ]] && ((place == COMP_CWORD)); then
        _visruntime_offer -W "$verbs" -- "$current"
        return
    fi
    case $operands in
    command)
        if ((place == COMP_CWORD)) && [[ $current != */* ]]; then
            _visruntime_offer -c -- "$current"
        elif declare -F _command_offset >/dev/null && ((place < COMP_CWORD)); then
            _command_offset "$place"
        else
            _visruntime_files "$current"
        fi
        ;;
    file) _visruntime_files "$current" ;;
    esac
}

complete -F _visruntime visruntime
