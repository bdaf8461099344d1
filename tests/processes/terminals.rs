//! Containers with a client: attached, in the foreground, in a terminal or with a pipe.

use super::pod;
use crate::cluster::Cluster;
use crate::screen::Screen;

/// A pod with one container that reads its input, with these fields.
fn shell(name: &str, fields: &str, command: &str) -> String {
    let command = serde_json::Value::from(command);
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 1, containers: \
         [{{name: main, image: busybox, {fields}, command: [sh, -c, {command}]}}]}}}}"
    )
}

const PROMPT: &str = "If you don't see a command prompt, try pressing enter.\n";

#[test]
fn standard_input_is_empty_a_pipe_or_a_terminal() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let look = "test -t 0 && tty; readlink /proc/self/fd/0 >&2; printenv TERM; exec sleep 1000";
    cluster.apply(&format!(
        "{}\n---\n{}\n---\n{}",
        shell("none", "stdin: false", look),
        shell("piped", "stdin: true", look),
        shell("tty", "stdin: true, tty: true", look)
    ));
    cluster.until("the input is empty", || cluster.log("none", "main") == "/dev/null\n");
    cluster.until("a pipe is open", || cluster.log("piped", "main").starts_with("pipe:["));
    cluster.until("TERM is set", || cluster.log("tty", "main").contains("xterm"));
    let log = cluster.log("tty", "main");
    assert!(log.starts_with("/dev/pts/"), "{log}");
}

#[test]
fn attach_to_a_shell_in_a_terminal_works() {
    let mut clusters = vec![Cluster::new()];
    clusters.extend(rustix::process::geteuid().is_root().then(|| Cluster::of_user(65_534)));
    for cluster in clusters {
        let _plane = cluster.watch();
        cluster.apply(&shell("box", "stdin: true, tty: true", "exec sh"));
        cluster.until_reads("pod/box", "{.status.phase}", "Running");
        let screen = Screen::run(&cluster, &["attach", "-it", "box"]);
        screen.until_shows("try pressing enter.");
        screen.until_raw();
        screen.types("stty size; echo a$((1+1))b\n");
        assert!(screen.until_shows("a2b").contains("31 97"));
        screen.resize(20, 40);
        screen.types("while test \"$(stty size)\" != '20 40'; do sleep 0.01; done; echo resized'!'\n");
        screen.until_shows("resized!");
        // Control-C reaches the shell and does not end it.
        screen.types("sh -c 'echo on$((0))ce; exec sleep 1000'\n");
        screen.until_shows("on0ce");
        screen.types("\u{3}");
        screen.types("echo twi$((0))ce\n");
        screen.until_shows("twi0ce");
        // Closing the window does not affect the container.
        screen.close();
        let screen = Screen::run(&cluster, &["attach", "-it", "box"]);
        screen.until_raw();
        screen.types("echo ag$((0))ain; exit 3\n");
        screen.until_shows("ag0ain");
        let (said, code) = screen.ended();
        let resume = "Session ended, resume using 'kloop attach box -c main -i -t' command when the pod is running";
        assert!(said.contains(resume), "{said}");
        assert_eq!(code, 0);
        assert!(cluster.log("box", "main").contains("a2b"), "the output is in the log too");
    }
}

#[test]
fn exec_terminal_has_job_control() {
    let mut clusters = vec![Cluster::new()];
    clusters.extend(rustix::process::geteuid().is_root().then(|| Cluster::of_user(65_534)));
    for cluster in clusters {
        let _plane = cluster.watch();
        cluster.apply(&shell("box", "stdin: false", "exec sleep 1000"));
        cluster.until_reads("pod/box", "{.status.phase}", "Running");
        let screen = Screen::run(&cluster, &["exec", "-it", "box", "--", "bash", "--norc", "-i"]);
        screen.until_raw();
        screen.types("tty; test -t 0 && echo y$((0))es; stty size\n");
        screen.until_shows("/dev/pts/");
        screen.until_shows("y0es");
        screen.until_shows("31 97");
        screen.types("echo $TERM > $(tty)\n");
        screen.until_shows("xterm\r\n");
        // Control-Z stops the program and returns to the shell, which can continue it.
        let program = "trap 'echo c$((0))aught; exit' INT; echo go$((0)); while read word; do echo $word$((0)); done";
        screen.types(&format!("sh -c \"{}\"\n", program.replace('$', "\\$")));
        screen.until_shows("go0");
        screen.types("\u{1a}");
        screen.until_shows("Stopped");
        screen.types("fg\n");
        screen.types("more\n");
        screen.until_shows("more0");
        screen.types("\u{3}");
        screen.until_shows("c0aught");
        screen.types("echo back$((0)); exit 4\n");
        screen.until_shows("back0");
        assert_eq!(screen.ended().1, 4);
    }
}

#[test]
fn attach_without_a_terminal_works() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let reader = "while read line; do echo \"got $line\"; done; echo over >&2";
    let once = shell("once", "stdin: true, stdinOnce: true", reader);
    let often = shell("often", "stdin: true", reader);
    cluster.apply(&format!(
        "{once}\n---\n{often}\n---\n{}",
        pod("deaf", "Never", 1, "trap 'echo heard; exit' TERM; while :; do sleep 0.05; done")
    ));
    for name in ["once", "often", "deaf"] {
        cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Running");
    }
    // Input with stdinOnce ends with the first attached client.
    let said = cluster.run(&["attach", "-i", "once"], "one\ntwo\n");
    assert_eq!((&*said.out, said.code), ("got one\ngot two\n", 0), "{}", said.err);
    assert!(said.err.ends_with(&format!("{PROMPT}over\n")), "{}", said.err);
    assert_eq!(cluster.run(&["attach", "-iq", "often"], "three\n").err, "");
    cluster.until("the line was read", || cluster.log("often", "main") == "got three\n");
    assert_eq!(cluster.run(&["attach", "-iq", "often"], "four\n").code, 0);
    cluster.until("the input is still open", || cluster.log("often", "main") == "got three\ngot four\n");
    // A container without input still shows its output.
    let deaf = cluster.background(&["attach", "-it", "deaf"]);
    deaf.until_says(PROMPT);
    // The program may exit before the shell that signals it; the kernel then kills that shell with the pid namespace.
    let asked = cluster.run(&["exec", "deaf", "--", "sh", "-c", "kill -TERM 1"], "");
    assert!([0, 137].contains(&asked.code), "{asked:?}");
    deaf.until_says("heard\n");
    assert_eq!(deaf.ended(), 0);
    let told = "error: Unable to use a TTY - container main did not allocate one\n";
    assert!(deaf.said().starts_with(told), "{}", deaf.said());
    let said = cluster.run(&["attach", "-it", "often"], "");
    assert!(said.err.starts_with("error: Unable to use a TTY - container main did not allocate one\n"), "{}", said.err);
}

#[test]
fn client_that_does_not_read_is_disconnected_and_the_container_continues() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("box", "Never", 1, "while :; do echo 0123456789; done"));
    cluster.until_reads("pod/box", "{.status.phase}", "Running");
    let mut shell = cluster.program("sh");
    shell.args(["-c", "{ \"$KLOOP\" attach -q box; echo $? > $HOME/code; } | head -n 1"]);
    let said = cluster.run_program(shell.env("KLOOP", env!("CARGO_BIN_EXE_kloop")), "");
    assert_eq!(said.out.len(), 11, "{}", said.out);
    assert_eq!(std::fs::read_to_string(cluster.home().join("code")).expect("it ended"), "141\n");
    let lines = || cluster.kloop("logs box --tail=1 --timestamps").out;
    let before = lines();
    cluster.until("the container continues to write", || lines() != before);
}

#[test]
fn run_in_the_foreground_returns_output_and_exit_code() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.until("the node is ready", || cluster.kloop("get nodes --no-headers").out.contains(" Ready "));
    let line = ["run", "a", "--image=busybox", "-i", "--rm", "--restart=Never", "-q", "--", "cat"];
    let said = cluster.run(&line, "hi\n");
    assert_eq!((&*said.out, &*said.err, said.code), ("hi\n", "", 0));
    let line =
        ["run", "b", "--image=busybox", "--attach", "--rm", "--restart=Never", "--", "sh", "-c", "echo out; exit 7"];
    let said = cluster.run(&line, "");
    assert_eq!((&*said.out, said.code), ("out\npod \"b\" deleted from default namespace\n", 7));
    assert!(said.err.ends_with("pod default/b terminated (Error)\n"), "{}", said.err);
    let screen = Screen::run(&cluster, &["run", "c", "-it", "--rm", "--image=busybox", "--restart=Never", "--", "sh"]);
    screen.until_raw();
    screen.types("stty size; tty; exit 5\n");
    screen.until_shows("31 97\r\n/dev/pts/");
    let (said, code) = screen.ended();
    assert!(said.contains("pod \"c\" deleted from default namespace\r\n"), "{said}");
    assert_eq!(code, 5);
    let usage = "See 'kloop run -h' for help and examples\n";
    let refusals = [
        ("run d --image=busybox --rm", "error: --rm should only be used for attached containers\n"),
        ("run d --image=busybox -t", "error: -i/--stdin is required for containers with -t/--tty=true\n"),
        (
            "run d --image=busybox -i --dry-run=client",
            "error: --dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)\n",
        ),
    ];
    for (line, told) in refusals {
        let said = cluster.kloop(line);
        assert_eq!((said.code, said.err), (1, format!("{told}{usage}")), "{line}");
    }
    cluster.nothing_is_left();
}

#[test]
fn attach_to_an_ended_container_reads_its_log() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // Each of these ends at about the time of the attach.
    for number in 0..5 {
        let name = format!("quick-{number}");
        let line = ["run", &name, "--image=busybox", "--attach", "--restart=Never", "--", "echo", "word"];
        let said = cluster.run(&line, "");
        assert_eq!((&*said.out, said.code), ("word\n", 0), "{}", said.err);
    }
    let said = cluster.kloop("attach quick-0");
    let told = "error: cannot attach a container in a completed pod; current phase is Succeeded\n";
    assert_eq!((&*said.out, &*said.err, said.code), ("", told, 1));
    cluster.apply(&super::pod("long", "Never", 1, "exec sleep 1000"));
    cluster.until_reads("pod/long", "{.status.phase}", "Running");
    let debug = ["debug", "long", "--attach", "--image=busybox", "-c", "look", "--", "echo", "seen"];
    let said = cluster.run(&debug, "");
    assert_eq!((&*said.out, said.code), ("seen\n", 0), "{}", said.err);
    cluster.ok("delete pods --all");
    cluster.nothing_is_left();
}

#[test]
fn run_in_the_foreground_says_when_nothing_will_start() {
    let cluster = Cluster::new();
    let line = ["run", "a", "--image=busybox", "-i", "--rm", "--pod-running-timeout=10ms", "--", "cat"];
    let said = cluster.run(&line, "");
    assert_eq!(said.code, 1);
    let hint = "hint: no control plane runs: nothing changes until one does (kloop reconcile --watch)\n";
    assert_eq!(said.err, format!("{hint}error: timed out waiting for the condition\n"));
    assert_eq!(said.out, "pod \"a\" deleted from default namespace\n");
}

#[test]
fn debug_adds_a_container_to_a_running_pod() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("box", "Always", 1, "exec sleep 1000"));
    cluster.until_reads("pod/box", "{.status.phase}", "Running");
    let line = ["debug", "box", "-it", "--image=busybox", "-c", "look", "--target=main", "--", "sh"];
    let screen = Screen::run(&cluster, &line);
    screen.until_shows("Targeting container \"main\".");
    screen.until_raw();
    screen.types("stty size; echo in$((0))side; exit 3\n");
    assert!(screen.until_shows("in0side").contains("31 97"));
    let (said, code) = screen.ended();
    assert!(said.contains("Session ended, the ephemeral container will not be restarted"), "{said}");
    assert_eq!(code, 0);
    let status = "{.status.ephemeralContainerStatuses[0]['name','ready','restartCount','state.terminated.exitCode']}";
    cluster.until_reads("pod/box", &status.replace(' ', ""), "look false 0 3");
    assert_eq!(cluster.read("pod/box", "{.status.phase}"), "Running");
    let described = cluster.ok("describe pod box");
    assert!(described.contains("Ephemeral Containers:\n  look:\n"), "{described}");
    // An added container stays as it is, and is not restarted.
    let said = cluster.kloop("debug box --image=other -c look");
    let told = "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"look\" may not be changed";
    assert!(said.code == 1 && said.err.contains(told), "{}", said.err);
    let said = cluster.run(&["debug", "box", "--attach", "-q", "--image=busybox", "--", "echo", "seen"], "");
    assert_eq!((&*said.out, said.code), ("seen\n", 0), "{}", said.err);
    let refusals = [
        ("debug box", "error: you must specify --image when not using --copy-to.\n"),
        ("debug box --image=a --replace", "error: --replace may only be used with --copy-to.\n"),
        ("debug box --image=a --profile=odd", "error: unknown profile: odd\n"),
        ("debug nope --image=a", "Error from server (NotFound): pods \"nope\" not found\n"),
    ];
    for (line, told) in refusals {
        let said = cluster.kloop(line);
        assert_eq!((said.code, &*said.err), (1, told), "{line}");
    }
    cluster.ok("delete pod box");
    cluster.nothing_is_left();
}

#[test]
fn debug_copies_a_pod_and_debugs_a_node() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("box", "Always", 1, "exit 1"));
    let line = ["debug", "box", "-iq", "--copy-to=again", "-c", "main", "--", "cat"];
    let said = cluster.run(&line, "typed\n");
    assert_eq!(said.code, 0, "{}", said.err);
    cluster.until("the copy has read the input", || cluster.log("again", "main").contains("typed"));
    assert_eq!(cluster.read("pod/again", "{.metadata.labels}"), "");
    let node = cluster.read("nodes", "{.items[0].metadata.name}");
    std::fs::write(cluster.home().join("here"), "the host's\n").expect("written");
    let file = format!("/host{}/here", cluster.home().display());
    let said = cluster.run(&["debug", &format!("node/{node}"), "--image=busybox", "--", "cat", &file], "");
    assert!(said.out.starts_with("Creating debugging pod node-debugger-"), "{}", said.out);
    let pod = said.out.split(' ').nth(3).expect("its name");
    cluster.until("the debugger has read the host's file", || cluster.log(pod, "debugger") == "the host's\n");
}

#[test]
fn shell_of_the_fixture_answers() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/shell/shell.yaml");
    cluster.ok(&format!("apply -f {manifest}"));
    cluster.ready_pods("app=shell", 1);
    let screen = Screen::run(&cluster, &["attach", "-it", "deploy/shell"]);
    screen.until_raw();
    screen.types("echo $GREETING from ${HOSTNAME%%-*}\n");
    screen.until_shows("hello from shell\r\n");
    screen.types("echo kept > /scratch/note; exit\n");
    screen.ended();
    // The next attempt finds the files of the previous one.
    cluster.until_reads("pods -l app=shell", "{.items[0].status.containerStatuses[0].restartCount}", "1");
    cluster.ready_pods("app=shell", 1);
    let screen = Screen::run(&cluster, &["attach", "-it", "deploy/shell"]);
    screen.until_raw();
    screen.types("cat /scratch/note\n");
    screen.until_shows("kept\r\n");
    screen.close();
}

#[test]
fn run_in_a_terminal_shows_the_output_when_standard_input_is_none() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.until("the node is ready", || cluster.kloop("get nodes --no-headers").out.contains(" Ready "));
    let script = "echo first; until test -e /tmp/go; do sleep 0.05; done; echo last; exit 7";
    let line = ["run", "a", "-it", "--rm", "-q", "--image=busybox", "--restart=Never", "--", "sh", "-c", script];
    let session = cluster.background(&line);
    cluster.until("its input is at the end", || cluster.kloop("exec a -- touch /tmp/go").code == 0);
    let code = session.ended();
    let said = session.said();
    assert!(said.contains("first\r\nlast\r\n") && code == 7, "{code}: {said}");
    // Programs read the end of a pipe, even in the middle of a line. Shells that edit lines, as BusyBox' does, end at the start of one
    // only.
    for (name, image, typed) in [("b", "busybox", "echo a$((1+1))b\n"), ("c", "debian", "echo a$((1+1))b")] {
        let line = ["run", name, "-it", "--rm", "-q", "--image", image, "--restart=Never", "--", "sh"];
        let said = cluster.run(&line, typed);
        assert!(said.out.contains("a2b\r\n") && said.code == 0, "{}{}", said.out, said.err);
    }
    cluster.nothing_is_left();
}

#[test]
fn delete_shows_how_many_objects_are_left() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}");
    cluster.ok("create configmap free");
    let screen = Screen::run(&cluster, &["delete", "configmap", "free", "held"]);
    screen.until_shows("deleting: 1 of 2 objects are gone");
    cluster.ok("patch configmap held --type=merge -p {\"metadata\":{\"finalizers\":null}}");
    let (shown, code) = screen.ended();
    assert!(code == 0 && shown.ends_with("\r\u{1b}[K"), "{shown:?}");
    assert_eq!(plane.end("TERM"), 0);
}
