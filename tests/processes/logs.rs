//! Logs while they are written, across restarts and rotations.

use super::{on_host_files, pod};
use crate::cluster::Cluster;

const RESTARTS: &str = "{.status.containerStatuses[0].restartCount}";

/// Returns a shell line that waits until a file exists in the cluster's folder.
fn wait_for(file: &str) -> String {
    format!("while ! test -e \"$HOME/{file}\"; do sleep 0.02; done")
}

fn touch(cluster: &Cluster, file: &str) {
    std::fs::write(cluster.home().join(file), "").expect("written");
}

/// Whether a process has a file of this container open.
fn has_open(pid: u32, container: &str) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut files = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    files.any(|file| file.parent().is_some_and(|folder| folder.ends_with(container)))
}

#[test]
fn following_continues_across_restarts_and_ends_with_the_pod() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    let again = r#"if test -e "$HOME/again"; then echo second; exec sleep 1000; fi"#;
    let script = format!("{again}; echo one; {}; echo two; echo three; {}; exit 4", wait_for("go"), wait_for("end"));
    cluster.apply(&on_host_files(&pod("talker", "Always", 1, &script)));
    cluster.until_logs("talker", "one\n");
    let follower = cluster.background(&["logs", "-f", "talker"]);
    let last_line = cluster.background(&["logs", "-f", "--tail=0", "talker"]);
    follower.until_says("one\n");
    cluster.until("the other one has opened the log", || has_open(last_line.pid(), "main"));
    touch(&cluster, "go");
    follower.until_says("two\n");
    touch(&cluster, "again");
    touch(&cluster, "end");
    follower.until_says("three\nsecond\n");
    last_line.until_says("second\n");
    assert!(!last_line.said().contains("one"), "{}", last_line.said());
    cluster.until_reads("pod/talker", RESTARTS, "1");
    cluster.until("the next attempt has printed", || cluster.kloop("logs talker").out == "second\n");
    assert_eq!(cluster.ok("logs -p talker"), "one\ntwo\nthree\n");
    assert_eq!(cluster.ok("logs -p talker --tail=1"), "three\n");
    // A client that connects now follows the running attempt.
    let later = cluster.background(&["logs", "-f", "talker"]);
    later.until_says("second\n");
    cluster.ok("delete pod talker");
    assert_eq!((later.ended(), later.said().as_str()), (0, "second\n"));
    assert_eq!((follower.ended(), follower.said().as_str()), (0, "one\ntwo\nthree\nsecond\n"));
}

#[test]
fn following_ends_with_the_last_attempt() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    // Fails once, then succeeds.
    let life = r#"echo x >> "$HOME/lives"; echo life $(wc -l < "$HOME/lives")"#;
    let script = format!(r#"{life}; {}; test $(wc -l < "$HOME/lives") = 2"#, wait_for("go"));
    cluster.apply(&on_host_files(&pod("twice", "OnFailure", 1, &script)));
    cluster.until_reads("pod/twice", "{.status.phase}", "Running");
    let follower = cluster.background(&["logs", "-f", "twice"]);
    follower.until_says("life 1\n");
    touch(&cluster, "go");
    assert_eq!((follower.ended(), follower.said().as_str()), (0, "life 1\nlife 2\n"));
    // The only attempt of a pod without restarts is the last.
    cluster.apply(&pod("once", "Never", 1, "echo once; exit 3"));
    cluster.until_reads("pod/once", "{.status.phase}", "Failed");
    assert_eq!(cluster.ok("logs -f once"), "once\n");
}

#[test]
fn previous_log_of_a_waiting_container_is_its_last_attempts() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1h", "--restart-backoff-max", "1h"]);
    let script = r#"echo x >> "$HOME/lives"; echo life $(wc -l < "$HOME/lives"); exit 1"#;
    cluster.apply(&on_host_files(&pod("looper", "Always", 1, script)));
    cluster.until_reads("pod/looper", "{.status.containerStatuses[0].state.waiting.reason}", "CrashLoopBackOff");
    assert_eq!(cluster.ok("logs looper"), "life 2\n");
    assert_eq!(cluster.run(&["logs", "looper", "-c", ""], "").out, "life 2\n", "an empty name selects the default");
    assert_eq!(cluster.ok("logs -p looper"), "life 2\n");
}

#[test]
fn several_containers_and_pods_are_followed_together() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    for name in ["red", "blue"] {
        let script = format!("echo {name}; {}; echo {name} again", wait_for("go"));
        cluster.apply(&on_host_files(&pod(name, "Never", 1, &script)).replace(&format!("app: {name}"), "app: both"));
        cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Running");
    }
    let follower = cluster.background(&["logs", "-f", "-l", "app=both", "--prefix"]);
    for name in ["red", "blue"] {
        follower.until_says(&format!("[pod/{name}/main] {name}\n"));
    }
    touch(&cluster, "go");
    assert_eq!(follower.ended(), 0);
    for name in ["red", "blue"] {
        assert!(follower.said().contains(&format!("[pod/{name}/main] {name} again\n")), "{}", follower.said());
    }
}

#[test]
fn rotated_log_reads_as_one() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // 28 MB: two full files and a third.
    let count = 280_000;
    let write =
        format!(r#"awk 'BEGIN {{ for (n = 1; n <= {count}; n++) printf "%07d %s\n", n, "{}" }}'"#, "x".repeat(50));
    let script = format!("{write}; {}; echo last; exit 1", wait_for("go"));
    cluster.apply(&on_host_files(&pod("wordy", "OnFailure", 1, &script)));
    let number = |line: &str| line.split(' ').next().and_then(|number| number.parse::<u32>().ok());
    cluster.until("the container has written all lines", || {
        cluster.kloop("logs wordy --tail=1").out.lines().next().and_then(number) == Some(count)
    });
    let uid = cluster.read("pod/wordy", "{.metadata.uid}");
    let files = std::fs::read_dir(cluster.pods_folder().join(uid).join("main")).expect("folder");
    let names: Vec<String> = files.map(|file| file.expect("file").file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().filter(|name| name.starts_with("0.log.")).count() >= 2, "{names:?}");

    let whole = cluster.ok("logs wordy");
    assert!(whole.lines().filter_map(number).eq(1..=count), "every line, once, in order");
    let tail = cluster.ok("logs wordy --tail=150000");
    assert!(tail.lines().filter_map(number).eq(count - 149_999..=count), "the last lines, from two files");
    let timed = cluster.ok("logs wordy --timestamps --tail=100000");
    let moment = timed.split(' ').next().expect("a time").to_owned();
    let since = cluster.ok(&format!("logs wordy --since-time={moment}"));
    assert!(since.lines().count() >= 100_000 && since.lines().count() <= count as usize);
    assert!(since.lines().filter_map(number).eq(count + 1 - since.lines().count() as u32..=count));
    assert_eq!(cluster.ok("logs wordy --since=1h").lines().count(), count as usize);

    touch(&cluster, "go");
    cluster.until_reads("pod/wordy", RESTARTS, "1");
    let running = "{.status.containerStatuses[0].state.running.startedAt}";
    cluster.until("the container writes again", || !cluster.read("pod/wordy", running).is_empty());
    let previous = cluster.ok("logs -p wordy --tail=2");
    assert_eq!(previous.lines().map(|line| number(line).is_some()).collect::<Vec<_>>(), [true, false], "{previous}");
    assert_eq!(cluster.ok("logs -p wordy").lines().count(), count as usize + 1);
}
