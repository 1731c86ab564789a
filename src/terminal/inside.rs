//! What is run inside a container for its terminal: the way to the shell, and questions and signals
//! that do not go through the terminal. Plain `sh` and `/proc`, no other tools than `stty`, `cat` and
//! `sleep`.

/// A line of ours before the shell begins: number of its process, whether the size was set, its name.
pub(super) const GREETING: &str = "pilothouse-terminal ";

/// Sets the size (a new terminal has none, and a program that starts at once would see that), says
/// hello, becomes the shell. Where the size can not be set from inside, waits for a line until it was
/// set from outside. What it is given: columns, rows, `login` or `bare`.
pub(super) const TO_THE_SHELL: &str = r#"
size=unsized
stty rows "$2" cols "$1" 2>/dev/null && size=sized
shell=sh
command -v bash >/dev/null 2>&1 && shell=bash
echo "pilothouse-terminal $$ $size $shell"
[ "$size" = sized ] || read -r line
if [ $shell = bash ]; then
    SHELL=$(command -v bash); export SHELL
    [ "$3" = bare ] && exec bash --noprofile --norc
    exec bash --login
fi
SHELL=/bin/sh; export SHELL
if [ "$3" = bare ]; then unset ENV; exec sh; fi
exec sh -l
"#;

/// Reads the fields of `/proc/N/stat` behind the name, which may hold anything: `$1` state, `$2` parent,
/// `$3` group, `$4` session, `$6` foreground group of its terminal.
const FIELDS: &str = r#"
fields() {
    all=
    while read -r part || [ -n "$part" ]; do all="$all $part"; done <"/proc/$1/stat" 2>/dev/null
    [ -n "$all" ] && rest=${all##*) }
}
"#;

/// Ends the processes of a session. What it is given: number of the session, `hangup` (as when a terminal
/// is lost: those that ignore it live on) or `kill`.
pub(super) fn end_session() -> String {
    format!(
        r#"{FIELDS}
each() {{
    found=0
    for stat in /proc/[0-9]*/stat; do
        one=${{stat#/proc/}}; one=${{one%/stat}}
        rest=; fields "$one" || continue
        set -- $rest
        [ "$4" = "$session" ] && [ "$1" != Z ] || continue
        if [ $how = hangup ]; then
            ignored=
            while read -r name value; do [ "$name" = SigIgn: ] && ignored=$value; done <"/proc/$one/status" 2>/dev/null
            case $ignored in *[13579bdf]) continue ;; esac
        fi
        found=1
        kill "-$signal" "$one" 2>/dev/null
    done
}}
session=$1; how=$2
if [ $how = hangup ]; then
    signal=HUP; each; signal=CONT; each
    [ $found = 1 ] && sleep 1
fi
signal=KILL
for turn in 1 2 3 4 5; do each; [ $found = 1 ] || break; done
exit 0
"#
    )
}

/// Interrupts what is in front on a terminal whose keys do not get through: throws away what waits to be
/// read there (with which Ctrl-C may get through by itself), then signals. What it is given: number of the session.
pub(super) fn interrupt() -> String {
    format!(
        r#"{FIELDS}
rest=; fields "$1" || exit 3
session=$1
set -- $rest
front=$6
[ "$front" -gt 1 ] 2>/dev/null || exit 4
if [ -c "/proc/$session/fd/0" ]; then
    cat <"/proc/$session/fd/0" >/dev/null 2>&1 &
    drain=$!
    sleep 1
    kill -9 $drain 2>/dev/null
fi
kill -INT -- "-$front" 2>/dev/null
exit 0
"#
    )
}

/// Whether the terminal of a session takes whole lines: prints `line` or `key`. What it is given: number
/// of the session.
pub(super) const MODE: &str = r#"
case " $(stty -a <"/proc/$1/fd/0" 2>/dev/null) " in
    *" -icanon"*) echo key ;;
    *" icanon"*) echo line ;;
esac
"#;
