//! Full disks, and replaced paths.

use super::{deployment, pod};
use crate::cluster::{Cluster, signal};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// A small file system at the cluster's folder, while this exists. Only root can mount one.
struct Small<'a>(&'a Cluster);

impl Small<'_> {
    fn new(cluster: &Cluster) -> Option<Small<'_>> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m,mode=700", "none"]).arg(cluster.home());
        let is_mounted = rustix::process::geteuid().is_root() && mount.status().is_ok_and(|status| status.success());
        if !is_mounted {
            skip!("no file system can be mounted here, so none fills up");
        }
        is_mounted.then_some(Small(cluster))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        self.0.end_everything();
        drop(Command::new("umount").arg("-l").arg(self.0.home()).status());
    }
}

#[test]
fn full_disk_changes_nothing_and_work_resumes() {
    let cluster = Cluster::new();
    let Some(_small) = Small::new(&cluster) else { return };
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let pods = cluster.ready_pods("app=web", 2);
    let pid = cluster.pid(&pods[0]);
    let filler = cluster.home().join("filler");
    assert!(fs::write(&filler, vec![0; 8 << 20]).is_err(), "there was too much room");
    let said = cluster.kloop("scale deploy/web --replicas=3");
    assert_eq!(said.code, 73, "{}", said.err);
    assert!(said.err.contains("no space left on the disk"), "{}", said.err);
    assert_eq!(cluster.read("deploy/web", "{.spec.replicas}"), "2");
    signal(pid, "KILL");
    plane.until_says("no space left on the disk");
    fs::remove_file(&filler).expect("removed");
    cluster.until_reads(&format!("pod/{}", pods[0]), "{.status.containerStatuses[0].restartCount}", "1");
    cluster.ok("scale deploy/web --replicas=3");
    cluster.ready_pods("app=web", 3);
    cluster.ok("delete deploy web");
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
