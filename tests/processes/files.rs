//! The file system of containers: the machine's files under a private layer, unless the Image object says otherwise.

use super::{ONCE, clusters, deployment, on_host_files, pod, pod_with};
use crate::cluster::Cluster;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// Returns a unique name in `/tmp`.
fn mark(what: &str) -> String {
    format!("/tmp/kloop-{what}-{}", std::process::id())
}

#[test]
fn replicas_have_private_files_and_the_machine_is_unchanged() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let (mark, home) = (mark("meet"), cluster.home().join("note"));
        fs::write(&home, "the machine's\n").expect("written");
        cluster.owns(&cluster.home());
        let home = home.display();
        let script = format!(
            "test -e {mark} && echo met; hostname > {mark}; cat {home}; hostname > {home}; cat {mark} {home}; exec sleep 1000"
        );
        let command = serde_json::json!(["sh", "-c", script]).to_string();
        cluster.apply(&deployment("web", 2, 1).replace("[sleep, \"1\"]", &command));
        for pod in cluster.ready_pods("app=web", 2) {
            let expected = format!("the machine's\n{pod}\n{pod}\n");
            cluster.until("the pod has written", || cluster.log(&pod, "main") == expected);
            let hosts = cluster.ok(&format!("exec {pod} -- cat /etc/hosts"));
            assert!(hosts.contains("Kubernetes-managed") && hosts.contains(&format!("\t{pod}\n")), "{hosts}");
            assert_eq!(cluster.ok(&format!("exec {pod} -- cat /etc/hostname")), format!("{pod}\n"));
        }
        assert!(!Path::new(&mark).exists());
        assert_eq!(fs::read_to_string(cluster.home().join("note")).expect("there"), "the machine's\n");
        cluster.ok("delete deployment web");
        cluster.nothing_is_left();
    }
}

#[test]
fn restart_begins_with_fresh_files() {
    for cluster in clusters() {
        let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
        let mark = mark("fresh");
        // The container starts in its own folder.
        let script = format!("ls {mark} here 2>/dev/null; touch {mark} here; ls here; exit 1");
        cluster.apply(&pod("phoenix", "Always", 1, &script));
        let restarts = "{.status.containerStatuses[0].restartCount}";
        cluster.until("the container was restarted", || {
            cluster.read("pod/phoenix", restarts).parse().is_ok_and(|n: u32| n > 1)
        });
        cluster.until("earlier files are gone", || cluster.kloop("logs -p phoenix").out == "here\n");
        cluster.ok("delete pod phoenix");
        cluster.nothing_is_left();
    }
}

#[test]
fn tmp_is_empty_and_private_to_each_container() {
    for cluster in clusters() {
        let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
        let (machines, mark) = (mark("machines"), mark("own"));
        fs::write(&machines, "the machine's\n").expect("written");
        // The cluster's own folder is visible, because it is in /tmp.
        let others = format!("ls -A /tmp | grep -v -x {}", top(&cluster.home()));
        let script = format!("stat -c %a /tmp; {others}; hostname > {mark}; cat {mark}; exec sleep 1000");
        let command = serde_json::json!(["sh", "-c", script]).to_string();
        cluster.apply(&deployment("web", 2, 1).replace("[sleep, \"1\"]", &command));
        for pod in cluster.ready_pods("app=web", 2) {
            cluster.until("the pod has its own file", || cluster.log(&pod, "main") == format!("1777\n{pod}\n"));
            assert_eq!(cluster.ok(&format!("exec {pod} -- cat {mark}")), format!("{pod}\n"));
            assert_ne!(cluster.kloop(&format!("exec {pod} -- cat {machines}")).code, 0);
        }
        assert!(!Path::new(&mark).exists());
        let again = format!("{others}; touch {mark}; exit 1");
        cluster.apply(&pod("again", "Always", 1, &again));
        let restarts = "{.status.containerStatuses[0].restartCount}";
        cluster.until("the container was restarted", || {
            cluster.read("pod/again", restarts).parse().is_ok_and(|n: u32| n > 1)
        });
        assert_eq!(cluster.kloop("logs -p again").out, "");
        let host = on_host_files(&pod("host", "Never", 1, &format!("cat {machines}")));
        cluster.apply(&host);
        cluster.until_reads("pod/host", "{.status.phase}", "Succeeded");
        fs::remove_file(&machines).expect("the machine's file is unchanged");
        cluster.ok("delete deployment web");
        cluster.ok("delete pod again host");
        cluster.nothing_is_left();
    }
}

/// Returns the name in `/tmp` that a folder is in.
fn top(folder: &Path) -> String {
    let rest = folder.strip_prefix("/tmp").expect("temporary folders are in /tmp");
    rest.components().next().expect("a name").as_os_str().to_string_lossy().into_owned()
}

#[test]
fn path_in_tmp_that_a_command_names_is_there_and_unchanged() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let job = tempfile::Builder::new().prefix("kloop-job-").tempdir_in("/tmp").expect("a folder");
        let alone = tempfile::Builder::new().prefix("kloop-alone-").tempfile_in("/tmp").expect("a file");
        let at = |name: &str| job.path().join(name).display().to_string();
        fs::create_dir(at("site")).expect("made");
        fs::write(at("serve.sh"), format!("#!/bin/sh\ncat {}; echo changed > {0}\n", at("site/page")))
            .expect("written");
        fs::write(alone.path(), format!("cat {}\n", at("site/page"))).expect("written");
        fs::write(at("site/page"), "the page\n").expect("written");
        for (name, mode) in [("serve.sh", 0o755), ("site/page", 0o644), ("site", 0o755), ("", 0o755)] {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("opened");
        }
        fs::set_permissions(alone.path(), fs::Permissions::from_mode(0o644)).expect("opened");
        cluster.owns(job.path());
        cluster.owns(&job.path().join("site"));
        let plain = |name: &str| pod_with(name, ONCE, "", "SCRIPT");
        let with = |name: &str, command: &str| plain(name).replace("[sh, -c, \"SCRIPT\"]", command);
        cluster.apply(&with("program", &format!("[{}]", at("serve.sh"))));
        cluster.apply(&with("argument", &format!("[sh, {}]", at("serve.sh"))));
        cluster.apply(&with("option", &format!("[env, PAGE={}, sh, -c, 'cat $PAGE']", at("site/page"))));
        cluster.apply(&with("beside", &format!("[sh, {}, {}]", alone.path().display(), at("site"))));
        cluster.apply(&pod_with("folder", ONCE, &format!("workingDir: {}", at("")), "sh ./serve.sh"));
        for name in ["program", "argument", "option", "beside", "folder"] {
            cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Succeeded");
            assert_eq!(cluster.log(name, "main"), "the page\n", "{name}");
        }
        assert_eq!(fs::read_to_string(at("site/page")).expect("there"), "the page\n");
        cluster.ok("delete pods --all");
        cluster.nothing_is_left();
    }
}

/// A tmpfs mounted on the machine; unmounted when dropped.
struct Mount(tempfile::TempDir);

impl Mount {
    fn in_tmp() -> Option<Mount> {
        let mount = Mount(tempfile::Builder::new().prefix("kloop-mount-").tempdir_in("/tmp").ok()?);
        let made = Command::new("mount").args(["-t", "tmpfs", "kloop-test"]).arg(mount.0.path()).status();
        made.is_ok_and(|status| status.success()).then_some(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

#[test]
fn hidden_paths_are_not_mounted() {
    // For an ordinary user, a folder with a mount in it is built entry by entry.
    let Some(_mount) = Mount::in_tmp() else { return skip!("nothing can be mounted in /tmp here") };
    let _hidden = tempfile::Builder::new().prefix("kloop-hidden-").tempfile_in("/tmp").expect("a file");
    for cluster in clusters() {
        let _plane = cluster.watch();
        let script = "grep -c -e kloop-hidden- -e kloop-mount- /proc/self/mountinfo; exit 0";
        cluster.apply(&pod("looks", "Never", 1, script));
        cluster.until_reads("pod/looks", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("looks", "main"), "0\n");
    }
}

#[test]
fn volume_above_the_clusters_folder_contains_only_what_was_put_into_it() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let above = cluster.home().parent().expect("a folder above").to_owned();
        let mount = |read_only: bool| {
            format!("volumeMounts: [{{name: v, mountPath: {}, readOnly: {read_only}}}]", above.display())
        };
        let script = format!("pwd; find {}; touch {0}/own", above.display());
        for (name, read_only, code) in [("writes", false, "0"), ("reads", true, "1")] {
            let spec = format!("{ONCE}, volumes: [{{name: v, emptyDir: {{}}}}]");
            cluster.apply(&pod_with(name, &spec, &mount(read_only), &script));
            let exit_code = "{.status.containerStatuses[0].state.terminated.exitCode}";
            cluster.until_reads(&format!("pod/{name}"), exit_code, code);
            let log = cluster.log(name, "main");
            let expected = format!("/\n{}\n", above.display());
            assert!(log.starts_with(&expected) && !log.contains("pods"), "{name}: {log}");
        }
    }
}

#[test]
fn pod_or_image_can_request_the_machines_files() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        cluster.apply("{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: dev}, spec: {patterns: [dev], filesystem: host}}");
        let writes = |name: &str| format!("echo {name} > {}", cluster.home().join(name).display());
        cluster.apply(&on_host_files(&pod("asked", "Never", 1, &writes("asked"))));
        cluster.apply(&pod("image", "Never", 1, &writes("image")).replace("debian", "dev"));
        cluster.apply(&pod("neither", "Never", 1, &writes("neither")));
        for name in ["asked", "image", "neither"] {
            cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Succeeded");
            assert_eq!(cluster.home().join(name).exists(), name != "neither", "{name}");
        }
        let spec = format!("{ONCE}, hostAliases: [{{ip: 10.1.2.3, hostnames: [far]}}]");
        let told = cluster.run(&["apply", "-f", "-"], &on_host_files(&pod_with("odd", &spec, "", "true")));
        let warning = "Warning: spec.hostAliases: no effect with kloop.dev/filesystem: host: the pod sees the machine's /etc/hosts";
        assert!(told.err.contains(warning), "{}", told.err);
        cluster.until_reads("pod/odd", "{.status.phase}", "Succeeded");
        cluster.until("events say so", || {
            let events = cluster.ok("get events");
            events.contains("FilesShared") && events.contains("hostAliases has no effect")
        });
        let wrong = on_host_files(&pod("wrong", "Never", 1, "true")).replace("host}", "hots}");
        let told = cluster.run(&["apply", "-f", "-"], &wrong);
        assert!(told.err.contains("supported values: \"host\", \"private\""), "{}", told.err);
    }
}

#[test]
fn missing_overlay_is_reported_once_per_pod() {
    let cluster = Cluster::new();
    let deny = "echo 0 > /proc/sys/user/max_user_namespaces && echo 0 > /proc/sys/user/max_mnt_namespaces";
    let tried = Command::new("unshare").args(["-Ur", "sh", "-c", deny]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip!("no user namespace can be had here, so namespaces cannot be denied in one");
    }
    let mut command = cluster.program("unshare");
    let plane = format!("{deny}; exec {} reconcile --watch", env!("CARGO_BIN_EXE_kloop"));
    command.args(["-Ur", "sh", "-c", &plane]);
    let _plane = cluster.background_program(command);
    let path = cluster.home().join("written");
    let script = format!("echo run >> {0}; test $(wc -l < {0}) -ge 2", path.display());
    cluster.apply(&pod("plain", "OnFailure", 1, &script));
    cluster.until_reads("pod/plain", "{.status.phase}", "Succeeded");
    assert_eq!(fs::read_to_string(path).expect("written"), "run\nrun\n", "the pod sees the machine's files");
    let told = cluster.ok("get events -o jsonpath={range.items[*]}{.reason}:{.count}:{.message};{end}");
    assert_eq!(told.matches("FilesShared").count(), 1, "{told}");
    assert!(told.contains("FilesShared:1:mount namespaces are not available on this machine"), "{told}");
}

#[test]
fn services_of_the_machine_answer_and_writes_beside_them_are_private() {
    if !rustix::process::geteuid().is_root() {
        return skip!("only root can have a service in /run");
    }
    let folder = tempfile::Builder::new().prefix("kloop-test-").tempdir_in("/run").expect("a folder");
    let path = folder.path().join("service.sock");
    let service = UnixListener::bind(&path).expect("bound");
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let pid_file = folder.path().with_extension("pid");
    let script = format!(
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{}\"); print(\"connected\")'; \
         echo $$$$ > {1}; test -s {1} && echo written",
        path.display(),
        pid_file.display()
    );
    cluster.apply(&pod("client", "Never", 1, &script));
    cluster.until_reads("pod/client", "{.status.phase}", "Succeeded");
    assert_eq!(cluster.log("client", "main"), "connected\nwritten\n");
    drop(service);
    assert!(!pid_file.exists());
}

#[test]
fn missing_working_folder_is_created_in_the_view() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let folder = mark("work/deep");
        cluster.apply(&pod_with("maker", ONCE, &format!("workingDir: {folder}"), "pwd; touch here && ls"));
        cluster.until_reads("pod/maker", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("maker", "main"), format!("{folder}\nhere\n"));
        assert!(!Path::new(&folder).exists());
    }
}

#[test]
fn missing_working_folder_is_created_in_a_writable_volume() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let spec = format!("{ONCE}, volumes: [{{name: data, emptyDir: {{}}}}]");
        let within = |read_only: bool| {
            let mount = format!("{{name: data, mountPath: /kloop-data, readOnly: {read_only}}}");
            format!("workingDir: /kloop-data/app/deep, volumeMounts: [{mount}]")
        };
        cluster.apply(&pod_with("maker", &spec, &within(false), "pwd; touch here && ls"));
        cluster.until_reads("pod/maker", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("maker", "main"), "/kloop-data/app/deep\nhere\n");
        cluster.apply(&pod_with("closed", &spec, &within(true), "pwd"));
        cluster.until("the error is reported", || {
            let state = cluster.read("pod/closed", "{.status.containerStatuses[0].state}");
            state.contains("chdir to cwd") && state.contains("no such file or directory")
        });
        cluster.ok("delete pod maker closed");
        cluster.nothing_is_left();
    }
}

#[test]
fn volumes_can_be_nested_and_cover_the_cluster_folder() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: outer}, data: {word: one}}");
        // The cluster's folder is in /tmp, and so is the default working folder of a container.
        let script =
            "echo kept > /outer/inner/file; while :; do cat /outer/word /outer/inner/file; echo; sleep 0.2; done";
        let volumes = "volumes: [{name: outer, configMap: {name: outer}}, {name: inner, emptyDir: {}}, {name: tmp, emptyDir: {}}]";
        let mounts = "volumeMounts: [{name: inner, mountPath: /outer/inner}, {name: outer, mountPath: /outer}, {name: tmp, mountPath: /tmp}]";
        cluster.apply(&pod_with("nested", &format!("{ONCE}, {volumes}"), mounts, script));
        let says = |word: &str| cluster.log("nested", "main").contains(word);
        cluster.until("both volumes have their files", || says("onekept\n"));
        assert!(cluster.kloop("exec nested -- touch /outer/new").err.contains("Read-only file system"));
        cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: outer}, data: {word: two}}");
        cluster.until("only the outer volume has changed", || says("twokept\n"));
        cluster.ok("delete pod nested");
        cluster.nothing_is_left();
    }
}

#[test]
fn program_is_found_where_a_link_in_a_volume_leads_its_mount() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        // The link leads the mount point of the second volume to a folder of PATH, in which the machine has no such program.
        cluster.apply(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tools}\ndata: {kloop-tool: \"#!/bin/sh\\necho from a volume\\n\"}\n\
             ---\napiVersion: v1\nkind: Pod\nmetadata: {name: linked}\nspec:\n  restartPolicy: Never\n  volumes:\n\
             \x20 - {name: data, emptyDir: {}}\n  - {name: tools, configMap: {name: tools, defaultMode: 0755}}\n\
             \x20 initContainers:\n  - {name: link, image: busybox, command: [ln, -s, /var/tmp, /kloop-data/bin], \
             volumeMounts: [{name: data, mountPath: /kloop-data}]}\n  containers:\n  - name: main\n    image: busybox\n\
             \x20   command: [kloop-tool]\n    env: [{name: PATH, value: \"/var/tmp:/usr/bin:/bin\"}]\n    volumeMounts:\n\
             \x20   - {name: data, mountPath: /kloop-data}\n\
             \x20   - {name: tools, mountPath: /kloop-data/bin/kloop-tool, subPath: kloop-tool}\n",
        );
        cluster.until_reads("pod linked", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("linked", "main"), "from a volume\n");
    }
}
