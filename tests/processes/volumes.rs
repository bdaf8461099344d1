//! Volumes of containers: their paths, their updates, and their removal.

use super::{ONCE, clusters, on_host_files, pod, pod_with};
use crate::cluster::Cluster;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

#[test]
fn every_kind_of_volume_is_mounted() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let outside = cluster.home().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("name"), "of the machine").unwrap();
        cluster.owns(&outside);
        let manifest = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: green, run.sh: "echo run $(cat /data/config/color)"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {token: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: files, labels: {app: files}}
spec:
  restartPolicy: Never
  hostAliases: [{ip: 10.1.2.3, hostnames: [far.example, far]}]
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: settings, configMap: {name: settings, defaultMode: 0555}}
  - {name: keys, secret: {secretName: keys, defaultMode: 0400, items: [{key: token, path: deep/token}]}}
  - {name: machine, hostPath: {path: OUTSIDE, type: Directory}}
  - name: all
    projected:
      sources:
      - {configMap: {name: settings, items: [{key: color, path: color}]}}
      - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
      - {serviceAccountToken: {path: token}}
  containers:
  - name: main
    image: busybox
    workingDir: /kloop-test/work
    env: [{name: WHO, value: me}]
    command: [sh, -c]
    args:
    - |
      echo $PWD $(cat /etc/kloop-test/deep/token) $(stat -Lc %a /etc/kloop-test/deep/token) $(cat /kloop-test/file)
      /data/config/run.sh
      echo kept > /data/of-pod; echo more > /logs/log; ls /data
      (echo no > /data/config/color) 2>/dev/null || echo refused
      (echo no > /machine/name) 2>/dev/null || echo refused
      cat /machine/name; echo; cat /kloop-test/all/color /kloop-test/all/labels; echo
      tr . '\n' < /kloop-test/all/token | wc -l
      grep far /etc/hosts
      touch /tmp/kloop-test-mark /var/log/kloop-test-mark "$HOME/mark" && ls /tmp/kloop-test-mark
    volumeMounts:
    - {name: scratch, mountPath: /data}
    - {name: scratch, mountPath: /logs, subPathExpr: logs/$(WHO)}
    - {name: settings, mountPath: /data/config}
    - {name: settings, mountPath: /kloop-test/file, subPath: color}
    - {name: keys, mountPath: /etc/kloop-test}
    - {name: machine, mountPath: /machine, readOnly: true}
    - {name: all, mountPath: /kloop-test/all}
"#;
        cluster.apply(&manifest.replace("OUTSIDE", &outside.display().to_string()));
        cluster.until_reads("pod/files", "{.status.phase}", "Succeeded");
        let expected = "/kloop-test/work s3cret 400 green\nrun green\nconfig\nlogs\nof-pod\nrefused\nrefused\nof the machine\n\
            greenapp=\"files\"\n2\n10.1.2.3\tfar.example\tfar\n/tmp/kloop-test-mark\n";
        assert_eq!(cluster.log("files", "main"), expected);
        for path in
            ["/kloop-test", "/data", "/machine", "/tmp/kloop-test-mark", "/var/log/kloop-test-mark", "/etc/kloop-test"]
        {
            assert!(!Path::new(path).exists(), "{path} of the machine was made");
        }
        assert!(!cluster.home().join("mark").exists(), "the user's home is under the layer, too");
        assert_eq!(fs::read_to_string(outside.join("name")).unwrap(), "of the machine");
        cluster.ok("delete pod files");
        cluster.nothing_is_left();
        assert!(outside.join("name").exists(), "the machine's files stay");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&cluster.home().display().to_string()), "{mounts}");
    }
}

#[test]
fn fixture_prints_its_expected_output() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/volumes/");
    cluster.ok(&format!("apply -f {fixture}"));
    cluster.ready_pods("app=reader", 1);
    cluster.until_logs("reader", "prepared by reader\napp=\"reader\"\nthe color is green\n");
    cluster.ok(r#"patch configmap settings -p {"data":{"color":"blue"}}"#);
    cluster.until("the container sees the change", || cluster.log("reader", "main").ends_with("the color is blue\n"));
}

const ROTATING: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: watcher, labels: {app: watcher}}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: keys, secret: {secretName: keys}}
  containers:
  - name: main
    image: busybox
    command: [sh, -c, 'while :; do said="$(cat /etc/settings/color)$(cat /etc/settings/shade) $(cat /etc/keys/token) $(cat /fixed)"; [ "$said" = "$last" ] || echo "$said"; last="$said"; sleep 0.02; done']
    volumeMounts:
    - {name: settings, mountPath: /etc/settings}
    - {name: keys, mountPath: /etc/keys}
    - {name: settings, mountPath: /fixed, subPath: color}
"#;

fn settings(color: &str, token: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, data: {{color: {color}, shade: {color}}}}}\n---\n\
         {{apiVersion: v1, kind: Secret, metadata: {{name: keys}}, stringData: {{token: {token}}}}}\n---\n"
    )
}

#[test]
fn changes_reach_running_pods_and_later_control_planes() {
    for cluster in clusters() {
        let plane = cluster.watch();
        cluster.apply(&(settings("red", "one") + ROTATING));
        cluster.until("the container has read the files", || cluster.log("watcher", "main") == "redred one red\n");
        cluster.apply(&settings("blue", "one"));
        cluster
            .until("the container sees the change", || cluster.log("watcher", "main").contains("blueblue one red\n"));
        plane.end("KILL");
        cluster.apply(&settings("blue", "two"));
        let _plane = cluster.watch();
        cluster.until("the container sees changes made without a control plane", || {
            cluster.log("watcher", "main").contains("blueblue two red\n")
        });
        assert_eq!(cluster.read("pod/watcher", "{.status.containerStatuses[0].restartCount}"), "0");
        cluster.ok("delete pod watcher");
        cluster.nothing_is_left();
    }
}

#[test]
fn restart_starts_fresh_but_keeps_volumes() {
    for cluster in clusters() {
        let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
        cluster.apply(
            r#"
apiVersion: v1
kind: Pod
metadata: {name: phoenix}
spec:
  restartPolicy: OnFailure
  volumes: [{name: kept, emptyDir: {}}]
  containers:
  - name: main
    image: busybox
    command: [sh, -c, 'echo run >> /kept/runs; ls /tmp/kloop-fresh 2>/dev/null; touch /tmp/kloop-fresh; mkdir -p /kept/closed; chmod 0 /kept/closed; test "$(wc -l < /kept/runs)" -ge 3 && cat /kept/runs']
    volumeMounts: [{name: kept, mountPath: /kept}]
"#,
        );
        cluster.until_reads("pod/phoenix", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("phoenix", "main"), "run\nrun\nrun\n");
        cluster.ok("delete pod phoenix");
        cluster.nothing_is_left();
    }
}

#[test]
fn probes_use_the_files_of_their_own_container() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let probed = |name: &str, script: &str| {
            pod(name, "Always", 1, script).replace(
                "image: debian",
                "image: debian, readinessProbe: {periodSeconds: 1, exec: {command: [cat, /tmp/kloop-healthy]}}",
            )
        };
        cluster.apply(&probed("well", "touch /tmp/kloop-healthy; exec sleep 1000"));
        cluster.apply(&probed("ill", "exec sleep 1000"));
        cluster.ready_pods("app=well", 1);
        cluster.until("the other pod was probed", || cluster.ok("get events").contains("/tmp/kloop-healthy"));
        assert_eq!(cluster.read("pod/ill", "{.status.containerStatuses[0].ready}"), "false");
        assert!(!Path::new("/tmp/kloop-healthy").exists());
        cluster.ok("delete pod well ill");
        cluster.nothing_is_left();
    }
}

#[test]
fn volume_that_cannot_be_set_up_is_reported_until_it_can() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    let place = cluster.home().join("late");
    let manifest = pod("waits", "Never", 1, "cat /in/late").replace(
        "containers:",
        &format!("volumes: [{{name: in, hostPath: {{path: {}, type: Directory}}}}]\n  containers:", place.display()),
    );
    cluster.apply(&manifest.replace("image: debian", "image: debian, volumeMounts: [{name: in, mountPath: /in}]"));
    let said = format!(
        "MountVolume.SetUp failed for volume \"in\" : hostPath type check failed: {} is not a directory",
        place.display()
    );
    cluster.until("an event says why", || cluster.ok("get events").contains(&said));
    assert_eq!(cluster.read("pod/waits", "{.status.containerStatuses[0].state.waiting.reason}"), "ContainerCreating");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("late"), "now\n").unwrap();
    cluster.until_reads("pod/waits", "{.status.phase}", "Succeeded");
    assert_eq!(cluster.log("waits", "main"), "now\n");
}

#[test]
fn sub_path_gets_the_mode_of_its_volume() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let own = cluster.home().join("own");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o711)).unwrap();
        cluster.owns(&own);
        let memory = "{name: memory, emptyDir: {medium: Memory}}";
        let own = own.display();
        let volumes = format!("[{{name: all, emptyDir: {{}}}}, {{name: own, hostPath: {{path: {own}}}}}, {memory}]");
        let mounts = "volumeMounts: [{name: all, mountPath: /all, subPath: a/b}, {name: own, mountPath: /own, subPath: c}, \
                      {name: memory, mountPath: /memory, subPath: d}, {name: memory, mountPath: /whole}]";
        let spec = format!("{ONCE}, volumes: {volumes}");
        cluster.apply(&pod_with(
            "parts",
            &spec,
            mounts,
            "stat -c %a /all /own; test $(stat -c %a /memory) = $(stat -c %a /whole) && touch /all/mine",
        ));
        cluster.until_reads("pod/parts", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("parts", "main"), "777\n711\n");
    }
}

#[test]
fn host_ipc_shares_memory_with_the_machine() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let name = format!("kloop-test-{}", std::process::id());
        let file = Path::new("/dev/shm").join(&name);
        if fs::write(&file, "of the machine\n").is_err() {
            return skip!("/dev/shm is not to be written to here");
        }
        let script = format!("cat /dev/shm/{name}");
        cluster.apply(&pod_with("shares", &format!("{ONCE}, hostIPC: true"), "", &script));
        cluster.apply(&pod_with("alone", ONCE, "", &script.replace("cat", "test ! -e")));
        cluster.until_reads("pod/shares", "{.status.phase}", "Succeeded");
        cluster.until_reads("pod/alone", "{.status.phase}", "Succeeded");
        fs::remove_file(file).unwrap();
        assert_eq!(cluster.log("shares", "main"), "of the machine\n");
    }
}

#[test]
fn sub_path_cannot_leave_its_volume() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let shared = cluster.home().join("shared");
    fs::create_dir(&shared).unwrap();
    symlink("/etc", shared.join("etc")).unwrap();
    symlink("..", shared.join("up")).unwrap();
    for (name, path) in [("etc", "etc/ssl"), ("up", "up/pods")] {
        let manifest = pod(name, "Never", 1, "ls /in").replace(
            "containers:",
            &format!("volumes: [{{name: in, hostPath: {{path: {}}}}}]\n  containers:", shared.display()),
        );
        let mount = format!("image: debian, volumeMounts: [{{name: in, mountPath: /in, subPath: {path}}}]");
        cluster.apply(&manifest.replace("image: debian", &mount));
        let waiting = "{.status.containerStatuses[0].state.waiting";
        cluster.until_reads(&format!("pod/{name}"), &format!("{waiting}.reason}}"), "CreateContainerConfigError");
        let said = cluster.read(&format!("pod/{name}"), &format!("{waiting}.message}}"));
        assert!(said.contains("not within volume path"), "{said}");
        assert_eq!(cluster.log(name, "main"), "");
    }
}

#[test]
fn machines_files_are_visible_on_request() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let script = "echo data > $KLOOP_VOLUME_MY_DATA/x; cat $KLOOP_VOLUME_MY_DATA/x; touch $HOME/here; ls /nowhere 2>&1";
    let spec = format!("{ONCE}, volumes: [{{name: my-data, emptyDir: {{}}}}]");
    let mount = "volumeMounts: [{name: my-data, mountPath: /nowhere}]";
    cluster.apply(&on_host_files(&pod_with("plain", &spec, mount, script)));
    cluster.until("the pod has ended", || {
        ["Succeeded", "Failed"].contains(&&*cluster.read("pod/plain", "{.status.phase}"))
    });
    let log = cluster.log("plain", "main");
    assert!(log.starts_with("data\n") && log.contains("/nowhere"), "{log}");
    assert!(cluster.home().join("here").exists());
}

#[test]
fn devices_and_termination_message_are_private() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let script = "head -c 4 /dev/urandom | wc -c; echo x > /dev/null; touch /dev/shm/kloop-mark; ls /dev/shm; \
            test -c /dev/pts/ptmx && echo terminals; echo last words > /dev/termination-log; exit 3";
        cluster.apply(&pod("own", "Never", 1, script));
        cluster.until_reads("pod/own", "{.status.phase}", "Failed");
        assert_eq!(cluster.log("own", "main"), "4\nkloop-mark\nterminals\n");
        let said = cluster.read("pod/own", "{.status.containerStatuses[0].state.terminated.message}");
        assert_eq!(said, "last words\n");
        assert!(!Path::new("/dev/termination-log").exists() && !Path::new("/dev/shm/kloop-mark").exists());
    }
}

#[test]
fn devices_are_like_the_machines_and_cannot_be_changed() {
    let stat = "stat -c '%n %F %t:%T %a' /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty";
    let machines = Command::new("sh").args(["-c", stat]).output().expect("sh runs").stdout;
    for cluster in clusters() {
        let _plane = cluster.watch();
        // A change that succeeds leaves the mode as it is.
        let script = format!(
            "{stat}; head -c 2 /dev/zero | od -An -tx1; echo x > /dev/null && echo written; (echo x > /dev/full) 2> /dev/null || echo full; \
             chmod $(stat -c %a /dev/null) /dev/null 2> /dev/null || echo refused"
        );
        cluster.apply(&pod("devices", "Never", 1, &script));
        cluster.until_reads("pod/devices", "{.status.phase}", "Succeeded");
        let expected = format!("{} 00 00\nwritten\nfull\nrefused\n", String::from_utf8_lossy(&machines));
        assert_eq!(cluster.log("devices", "main"), expected);
    }
}

#[test]
fn cluster_folder_can_be_in_shared_memory() {
    let is_root = rustix::process::geteuid().is_root();
    for user in [None, Some(65534)].into_iter().filter(|user| user.is_none() || is_root) {
        let Ok(cluster) = Cluster::within(Path::new("/dev/shm")) else {
            return skip!("/dev/shm is not to be written to here");
        };
        let cluster = user.into_iter().fold(cluster, Cluster::owned_by);
        let _plane = cluster.watch();
        let page = cluster.home().join("page");
        fs::write(&page, "the page\n").expect("written");
        cluster.owns(&cluster.home());
        let script = format!(
            "cat /conf/x {0}; echo changed > {0}; cat {0}; ls -A /dev/shm; touch /dev/shm/own; echo x > /v/y; cat /v/y",
            page.display()
        );
        let mounts = "volumeMounts: [{name: conf, mountPath: /conf}, {name: v, mountPath: /v}]";
        let spec = format!("{ONCE}, volumes: [{{name: conf, configMap: {{name: conf}}}}, {{name: v, emptyDir: {{}}}}]");
        cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {x: \"read\\n\"}}");
        cluster.apply(&pod_with("shared", &spec, mounts, &script));
        cluster.until_reads("pod/shared", "{.status.phase}", "Succeeded");
        let entry = cluster.home().file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(cluster.log("shared", "main"), format!("read\nthe page\nchanged\n{entry}\nx\n"));
        assert_eq!(fs::read_to_string(&page).expect("there"), "the page\n");
        assert!(!Path::new("/dev/shm/own").exists());
        // A volume can be mounted there, too.
        let spec = format!("{ONCE}, volumes: [{{name: m, emptyDir: {{medium: Memory}}}}]");
        let mounts = "volumeMounts: [{name: m, mountPath: /dev/shm}]";
        cluster.apply(&pod_with("volume", &spec, mounts, "touch /dev/shm/own; ls /dev/shm"));
        cluster.until_reads("pod/volume", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("volume", "main"), "own\n");
        cluster.ok("delete pods --all");
        cluster.nothing_is_left();
    }
}

#[test]
fn program_beside_its_manifest_runs_in_that_folder() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let folder = cluster.home().join("project");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("server"), "#!/bin/sh\npwd; echo built > made; cat /conf/x\n").unwrap();
        fs::set_permissions(folder.join("server"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(
            folder.join("app.yaml"),
            r#"
{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {x: "read\n"}}
---
apiVersion: v1
kind: Pod
metadata: {name: project}
spec:
  restartPolicy: Never
  volumes: [{name: conf, configMap: {name: conf}}]
  containers: [{name: main, image: ./server, volumeMounts: [{name: conf, mountPath: /conf}]}]
"#,
        )
        .unwrap();
        cluster.owns(&folder);
        cluster.ok(&format!("apply -f {}", folder.join("app.yaml").display()));
        cluster.until_reads("pod/project", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("project", "main"), format!("{}\nread\n", folder.display()));
        assert_eq!(fs::read_to_string(folder.join("made")).unwrap(), "built\n", "the folder is the machine's");
    }
}

#[test]
fn claim_keeps_its_data_until_it_is_deleted() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        cluster.apply(
            "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
             resources: {requests: {storage: 1Gi}}}}",
        );
        cluster.until_reads("pvc/data", "{.status.phase}/{.spec.storageClassName}", "Bound/standard");
        let on_data = |name: &str, script: &str| {
            pod(name, "Never", 1, script)
                .replace("containers:", "volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]\n  containers:")
                .replace("image: debian", "image: debian, volumeMounts: [{name: d, mountPath: /data}]")
        };
        cluster.apply(&on_data("first", "echo handed over > /data/note"));
        cluster.until_reads("pod/first", "{.status.phase}", "Succeeded");
        cluster.ok("delete pod first");
        cluster.apply(&on_data("second", "cat /data/note"));
        cluster.until_reads("pod/second", "{.status.phase}", "Succeeded");
        assert_eq!(cluster.log("second", "main"), "handed over\n");
        let kept = cluster.home().join("volumes");
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
        cluster.ok("delete pod second");
        cluster.ok("delete pvc data");
        cluster.until("the volume is deleted", || cluster.ok("get pv -o name").is_empty());
        cluster.until("its files are removed", || fs::read_dir(&kept).unwrap().count() == 0);
        cluster.nothing_is_left();
    }
}

#[test]
fn pod_of_a_waiting_claim_mounts_it_at_the_first_try() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: local.kloop.dev, \
         volumeBindingMode: WaitForFirstConsumer}\n---\n\
         {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
         storageClassName: late, resources: {requests: {storage: 1Gi}}}}",
    );
    let writer = pod("writer", "Never", 1, "echo kept > /data/note")
        .replace("containers:", "volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]\n  containers:")
        .replace("image: debian", "image: debian, volumeMounts: [{name: d, mountPath: /data}]");
    cluster.apply(&writer);
    cluster.until_reads("pod/writer", "{.status.phase}", "Succeeded");
    let events = cluster.ok("get events");
    assert!(!events.contains("FailedMount") && !events.contains("FailedScheduling"), "{events}");
    let volume = cluster.read("pvc/data", "{.spec.volumeName}");
    cluster.ok(&format!("delete pv {volume} --wait=false"));
    cluster.ok("delete pod writer");
    cluster.ok("delete pvc data");
    cluster.until("the volume that was deleted first is gone", || cluster.ok("get pv -o name").is_empty());
    let kept = cluster.home().join("volumes");
    cluster.until("its files are removed", || fs::read_dir(&kept).unwrap().count() == 0);
    cluster.nothing_is_left();
}
