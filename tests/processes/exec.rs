//! Commands in running containers, from clients.

use super::{on_host_files, pod};
use crate::cluster::Cluster;

/// Runs a line in a new terminal, with a shell script that types the input.
fn in_terminal(cluster: &Cluster, line: &str, typist: &str) -> (String, i32) {
    let command = format!("stty rows 31 cols 97; \"$KLOOP\" {line}");
    let mut shell = cluster.program("sh");
    shell.env("KLOOP", env!("CARGO_BIN_EXE_kloop")).env("LINE", command);
    shell.args(["-c", &format!("{{ {typist}; }} | script -qec \"$LINE\" /dev/null")]);
    let said = cluster.run_program(&mut shell, "");
    (said.out, said.code)
}

#[test]
fn exec_runs_in_the_container_and_returns_the_exit_code() {
    let cluster = Cluster::new();
    {
        let plane = cluster.watch();
        cluster.apply(&pod("box", "Never", 1, "export UNSEEN=1; echo secret > here; exec sleep 1000"));
        cluster.until_reads("pod/box", "{.status.phase}", "Running");
        cluster.until("the file exists", || cluster.kloop("exec box -- cat here").out == "secret\n");
        assert_eq!(plane.end("TERM"), 0);
    }
    // Only the shim is needed.
    let said = cluster.run(&["exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert_eq!((&*said.out, said.code), ("out\n", 7));
    assert_eq!(said.err, "err\ncommand terminated with exit code 7\n");
    assert_eq!(cluster.ok("exec pod/box -c main -- printenv HOME"), cluster.home().display().to_string() + "\n");
    assert_eq!(cluster.run(&["exec", "-i", "box", "--", "cat"], "typed").out, "typed");
    assert_eq!(cluster.run(&["exec", "box", "--", "cat"], "typed").out, "", "without -i the input is empty");
    let said = cluster.run(&["exec", "-it", "box", "--", "cat"], "typed");
    assert_eq!(said.out, "typed");
    assert_eq!(said.err, "Unable to use a TTY - input is not a terminal or the right kind of file\n");
    // An empty container name selects the default, and a file may name the pod.
    assert_eq!(cluster.run(&["exec", "box", "-c", "", "--", "cat", "here"], "").out, "secret\n");
    let manifest = pod("box", "Never", 1, "");
    assert_eq!(cluster.run(&["exec", "-f", "-", "--", "cat", "here"], &manifest).out, "secret\n");
    let both = "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well";
    assert_eq!(cluster.run(&["exec", "box", "-f", "-", "--", "true"], &manifest).err, format!("error: {both}\n"));
    let said = cluster.run(&["exec", "-f", "-"], &manifest);
    assert_eq!((said.code, &*said.err), (1, "error: you must specify at least one command for the container\n"));
    let refusals = [
        (
            "exec box -- nosuchprogram",
            "error: Internal error occurred: error executing command in container: exec: \"nosuchprogram\": executable file not found in $PATH\n",
        ),
        ("exec box -c other -- true", "error: container other is not valid for pod box out of: main\n"),
        ("exec nope -- true", "Error from server (NotFound): pods \"nope\" not found\n"),
        ("exec box", "error: you must specify at least one command for the container\n"),
    ];
    for (line, told) in refusals {
        let said = cluster.kloop(line);
        assert_eq!((said.code, &*said.err), (1, told), "{line}");
    }
}

#[test]
fn exec_terminal_has_the_size_of_the_clients() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&on_host_files(&pod("box", "Never", 1, "exec sleep 1000")));
    cluster.until_reads("pod/box", "{.status.phase}", "Running");
    let typist = r"printf 'test -t 0 && stty size; exit 5\n'";
    let (said, code) = in_terminal(&cluster, "exec -it box -- sh", typist);
    assert!(said.contains("31 97\r\n"), "{said}");
    assert!(said.contains("command terminated with exit code 5"), "{said}");
    assert_eq!(code, 5);
    // Control-C reaches only the command, and our terminal is restored afterwards.
    let script = "trap \"echo caught; exit 3\" INT; touch $HOME/ready; while :; do sleep 0.02; done";
    let typist = r#"until test -e "$HOME/ready"; do sleep 0.02; done; printf '\003'"#;
    let (said, code) = in_terminal(&cluster, &format!("exec -it box -- sh -c '{script}' || stty -a"), typist);
    assert!(said.contains("caught") && said.contains("exit code 3"), "{said}");
    assert!(said.contains(" icanon") && said.contains(" echo "), "{said}");
    assert_eq!(code, 0);
}

#[test]
fn session_ends_with_its_client_and_its_container() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("box", "Never", 1, "exec sleep 1000"));
    cluster.until_reads("pod/box", "{.status.phase}", "Running");
    let count = |argument: &str| {
        let is_it = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .unwrap_or_default()
                .ends_with(format!("{argument}\0").as_bytes())
        };
        cluster.processes().iter().filter(|pid| is_it(pid)).count()
    };
    let asker = cluster.background(&["exec", "box", "--", "sh", "-c", "sleep 2001; true", "2001"]);
    cluster.until("the command runs", || count("2001") > 0);
    asker.end("KILL");
    cluster.until("the command ended with its client", || count("2001") == 0);
    let asker = cluster.background(&["exec", "box", "--", "sleep", "2002"]);
    cluster.until("the command runs", || count("2002") > 0);
    cluster.ok("delete pod box --grace-period=1");
    assert_eq!(asker.ended(), 137);
    cluster.nothing_is_left();
}

#[test]
fn files_are_copied_both_ways_as_the_container_sees_them() {
    let mut clusters = vec![Cluster::new()];
    clusters.extend(rustix::process::geteuid().is_root().then(|| Cluster::of_user(65_534)));
    for cluster in clusters {
        let plane = cluster.watch();
        let private = pod("box", "Never", 1, "mkdir -p /tmp/of/it; echo theirs > /tmp/of/it/file; exec sleep 1000");
        cluster.apply(&private);
        cluster.until("the file exists", || cluster.kloop("exec box -- cat /tmp/of/it/file").out == "theirs\n");
        assert_eq!(plane.end("TERM"), 0);
        let home = cluster.home();
        let (got, mine) = (home.join("got"), home.join("mine"));
        cluster.ok(&format!("cp box:/tmp/of {}", got.display()));
        assert_eq!(std::fs::read_to_string(got.join("it/file")).expect("copied"), "theirs\n");
        std::fs::write(&mine, "mine\n").expect("written");
        let name = format!("kloop-cp-{}", std::process::id());
        cluster.ok(&format!("cp {} default/box:/tmp/{name} -c main", mine.display()));
        assert_eq!(cluster.ok(&format!("exec box -- cat /tmp/{name}")), "mine\n");
        assert!(!std::path::Path::new("/tmp").join(name).exists(), "the machine's files are unchanged");
        let refusals = [
            ("cp a b".to_owned(), "error: one of src or dest must be a remote file specification\n"),
            ("cp box:a box:b".to_owned(), "error: one of src or dest must be a local file specification\n"),
            ("cp /no/such box:/tmp".to_owned(), "error: /no/such doesn't exist in local filesystem\n"),
            (
                format!("cp box:/no/such {}", got.display()),
                "tar: /no/such: Cannot stat: No such file or directory\ntar: Exiting with failure status due to previous \
                 errors\ncommand terminated with exit code 2\n",
            ),
            (
                format!("cp {} box:/no/such/folder", mine.display()),
                "tar: /no/such: Cannot open: No such file or directory\ntar: Error is not recoverable: exiting now\ncommand \
                 terminated with exit code 2\n",
            ),
        ];
        for (line, told) in refusals {
            assert_eq!(cluster.kloop(&line).err, told, "{line}");
        }
        cluster.ok("exec box -- ln -s /tmp/of/it/file /tmp/link");
        let alone = home.join("alone");
        let said = cluster.kloop(&format!("cp box:/tmp/link {}", alone.display()));
        let advice = "(consider using \"kloop exec -n \"default\" \"box\" -- tar cf - \"/tmp/link\" | tar xf -\")";
        let told =
            format!("warning: skipping symlink: {:?} -> \"/tmp/of/it/file\" {advice}\n", alone.display().to_string());
        assert_eq!((said.code, said.err, alone.exists()), (0, told, false));
    }
}

#[test]
fn attach_shows_output_from_now_on() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let script = "echo before; until test -e $HOME/go; do sleep 0.02; done; echo after; exit 2";
    cluster.apply(&on_host_files(&pod("talker", "Never", 1, script)));
    cluster.until("the log has the first line", || cluster.kloop("logs talker").out == "before\n");
    let attached = cluster.background(&["attach", "talker"]);
    attached.until_says("If you don't see a command prompt, try pressing enter.\n");
    std::fs::write(cluster.home().join("go"), "").expect("written");
    assert_eq!(attached.ended(), 0);
    assert_eq!(attached.said().lines().last(), Some("after"));
    assert!(!attached.said().contains("before"), "{}", attached.said());
    cluster.until_reads("pod/talker", "{.status.phase}", "Failed");
    let said = cluster.kloop("attach talker");
    assert_eq!(said.err, "error: cannot attach a container in a completed pod; current phase is Failed\n");
}
