//! Full disks, and replaced paths.

use super::{ONCE, deployment, pod, pod_with};
use crate::cluster::{Cluster, signal};
use rustix::fs::FallocateFlags;
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// A small file system at the cluster's folder, while this exists. Only root can mount one. It holds the longest WAL.
struct Small<'a>(&'a Cluster);

impl Small<'_> {
    fn new(cluster: &Cluster) -> Option<Small<'_>> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=40m,mode=700", "none"]).arg(cluster.home());
        let is_mounted = rustix::process::geteuid().is_root() && mount.status().is_ok_and(|status| status.success());
        if !is_mounted {
            skip!("no file system can be mounted here, so none fills up");
        }
        is_mounted.then_some(Small(cluster))
    }

    /// Leaves less than 64 KiB: enough for the messages of a control plane, which are in a file here.
    fn fill(&self) {
        let filler = fs::File::options().append(true).create(true).open(self.filler()).expect("a file");
        let step = 64 << 10;
        let mut length = filler.metadata().expect("metadata").len();
        while rustix::fs::fallocate(&filler, FallocateFlags::empty(), length, step).is_ok() {
            length += step;
        }
    }

    fn empty(&self) {
        fs::remove_file(self.filler()).expect("removed");
    }

    fn filler(&self) -> PathBuf {
        self.0.home().join("filler")
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // The cluster itself reports processes that are left.
        drop(self.0.end_everything());
        drop(Command::new("umount").arg("-l").arg(self.0.home()).status());
    }
}

#[test]
fn full_disk_changes_nothing_and_work_resumes() {
    let cluster = Cluster::new();
    let Some(small) = Small::new(&cluster) else { return };
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let pods = cluster.ready_pods("app=web", 2);
    let pid = cluster.pid(&pods[0]);
    // A refused write copies the WAL back, which frees its space.
    let attempts = Cell::new(0);
    let said = cluster.wait_for("a write is refused", || {
        small.fill();
        attempts.set(attempts.get() + 1);
        let said = cluster.kloop(&format!("annotate deploy/web attempt={} --overwrite", attempts.get()));
        (said.code != 0).then_some(said)
    });
    assert_eq!(said.code, 73, "{}", said.err);
    assert!(said.err.contains("no space left on the disk"), "{}", said.err);
    assert_ne!(cluster.read("deploy/web", "{.metadata.annotations.attempt}"), attempts.get().to_string());
    let refused = || plane.said().matches("no space left on the disk").count();
    let before = refused();
    signal(pid, "KILL");
    cluster.until("the control plane meets the full disk", || {
        small.fill();
        refused() > before
    });
    small.empty();
    cluster.until_reads(&format!("pod/{}", pods[0]), "{.status.containerStatuses[0].restartCount}", "1");
    cluster.ok("scale deploy/web --replicas=3");
    cluster.ready_pods("app=web", 3);
    cluster.ok("delete deploy web");
    cluster.nothing_is_left();
}

#[test]
fn pod_that_fills_the_disk_is_deleted_with_the_reserve() {
    let cluster = Cluster::new();
    let Some(small) = Small::new(&cluster) else { return };
    let reserve = cluster.home().join("state.db.reserve");
    let has_reserve = || fs::metadata(&reserve).is_ok_and(|file| file.len() == 8 << 20);
    let plane = cluster.watch();
    cluster.until("the reserve is there", has_reserve);
    let script = "echo begun; while :; do head -c 65536 /dev/zero >> /data/fill || sleep 0.01; done 2>/dev/null";
    let spec = format!("{ONCE}, volumes: [{{name: data, emptyDir: {{}}}}]");
    cluster.apply(&pod_with("filler", &spec, "volumeMounts: [{name: data, mountPath: /data}]", script));
    cluster.wait_for("a write is refused", || {
        small.fill();
        (cluster.kloop("annotate pod/filler attempt=now --overwrite").code == 73).then_some(())
    });
    assert!(has_reserve(), "other writes do not use it");
    plane.end("KILL");
    // A control plane that starts on the full disk leads and serves the deletion.
    let _plane = cluster.watch();
    small.fill();
    cluster.ok("delete pod filler");
    assert!(!has_reserve(), "the deletion used a part");
    small.empty();
    cluster.until("the reserve is complete again", has_reserve);
    cluster.ok("annotate namespace default attempt=now");
    cluster.nothing_is_left();
}

#[test]
fn control_plane_on_a_full_disk_without_a_reserve_waits_for_space() {
    let cluster = Cluster::new();
    let Some(small) = Small::new(&cluster) else { return };
    cluster.ok("create deployment web --image=busybox --replicas=0");
    small.fill();
    let plane = cluster.watch();
    plane.until_says("no space left on the disk");
    small.empty();
    plane.until_says("ready:");
    cluster.nothing_is_left();
}

#[test]
fn paths_replaced_by_links_are_not_followed() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let script = r#"i=0; while :; do i=$((i+1)); echo "line $i"; sleep 0.05; done"#;
    cluster.apply(&pod("web", "Always", 1, script));
    cluster.until("the container writes", || cluster.log("web", "main").contains("line 3\n"));
    let folder = cluster.pods_folder().join(cluster.read("pod/web", "{.metadata.uid}"));
    let (precious, elsewhere) = (cluster.home().join("precious"), cluster.home().join("elsewhere"));
    fs::write(&precious, "precious\n").expect("written");

    // The path of its next log leads to another file, and that of its socket to another socket.
    symlink(&precious, folder.join("main/1.log")).expect("linked");
    signal(cluster.pid("web"), "KILL");
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].restartCount}", "1");
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].ready}", "true");
    fs::rename(folder.join("shim.sock"), &elsewhere).expect("moved");
    symlink(&elsewhere, folder.join("shim.sock")).expect("linked");
    plane.end("KILL");
    let _next = cluster.watch();
    cluster.ok("delete pod web");
    assert_eq!(fs::read_to_string(&precious).expect("it is there"), "precious\n");
    cluster.nothing_is_left();
}
