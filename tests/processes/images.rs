//! Images as local programs: Image objects come first, a missing image waits for one, programs are built once and rebuilt after changes.

use super::pod;
use crate::cluster::{Cluster, signal};
use std::fs;
use std::path::{Path, PathBuf};

const IMAGE_ID: &str = "{.status.containerStatuses[0].imageID}";
const RESTARTS: &str = "{.status.containerStatuses[0].restartCount}";

/// Writes a manifest into a folder of the cluster and applies it from there, so that relative paths work.
fn apply_file(cluster: &Cluster, name: &str, text: &str) {
    let path = folder(cluster).join(name);
    fs::write(&path, text).expect("written");
    cluster.ok(&format!("apply -f {}", path.display()));
}

fn folder(cluster: &Cluster) -> PathBuf {
    let folder = cluster.home().join("project");
    fs::create_dir_all(&folder).expect("made");
    folder
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    // Renamed into place, so that a process that starts it sees the old or the new one.
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, text).expect("written");
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).expect("set");
    fs::rename(fresh, path).expect("renamed");
}

/// A Pod with only an image.
fn plain(name: &str, image: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, \
         spec: {{terminationGracePeriodSeconds: 2, containers: [{{name: main, image: \"{image}\"}}]}}}}\n"
    )
}

#[test]
fn missing_image_starts_as_soon_as_its_object_exists() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&plain("web", "ghcr.io/kloop-test/web:1"));
    let waiting = "{.status.containerStatuses[0].state.waiting";
    cluster.until_reads("pod/web", &format!("{waiting}.reason}}"), "ImagePullBackOff");
    let message = cluster.read("pod/web", &format!("{waiting}.message}}"));
    // The message contains the missing object, ready to be completed and applied.
    let object = message.split_once(", which is ").expect("an object").1;
    cluster.apply(&object.replace("[PROGRAM]", "[sleep, \"600\"]"));
    cluster.until_reads("pod/web", "{.status.phase}", "Running");
    assert!(cluster.ok("describe pod web").contains("ErrImagePull"));
    let never = plain("never", "kloop-test-none").replace("image:", "imagePullPolicy: Never, image:");
    cluster.apply(&never);
    cluster.until_reads("pod/never", &format!("{waiting}.reason}}"), "ErrImageNeverPull");
}

#[test]
fn image_object_decides_the_program() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let folder = folder(&cluster);
    script(
        &folder.join("tell.sh"),
        "#!/bin/sh\necho \"$0\" \"$@\"; echo $COLOR $SIZE; pwd; id -un; echo changed > mark; touch \"$TMPDIR_MARK\"\n",
    );
    let mark = folder.join("of-machine");
    let user = if rustix::process::geteuid().is_root() { "user: root:0" } else { "ports: []" };
    let image = format!(
        "{{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {{name: tell}}, spec: {{patterns: ['kloop-test/tell:1.*'], \
         entrypoint: [./tell.sh, '$(COLOR)'], command: [by, default], workingDir: ., filesystem: host, {user}, \
         env: [{{name: COLOR, value: red}}, {{name: SIZE, value: big}}, {{name: TMPDIR_MARK, value: {}}}]}}}}\n---\n",
        mark.display()
    );
    let pod = plain("tell", "docker.io/kloop-test/tell:1.2")
        .replace("image:", "env: [{name: SIZE, value: small}], image:")
        .replace(
            "terminationGracePeriodSeconds",
            "volumes: [{name: v, emptyDir: {}}], restartPolicy: Never, terminationGracePeriodSeconds",
        );
    apply_file(&cluster, "tell.yaml", &(image + &pod));
    cluster.until_reads("pod/tell", "{.status.phase}", "Succeeded");
    let said = cluster.log("tell", "main");
    let said: Vec<&str> = said.lines().collect();
    assert!(said[0].ends_with("/project/./tell.sh red by default"), "{said:?}");
    assert_eq!(said[1], "red small");
    assert_eq!(Path::new(said[2]), fs::canonicalize(&folder).expect("there"));
    assert!(mark.exists() && folder.join("mark").exists(), "filesystem: host");
    assert_eq!(cluster.kloop("image resolve kloop-test/tell:2").code, 1);
    let resolved = cluster.ok("image resolve kloop-test/tell:1.9");
    assert!(resolved.contains("Rule:         Image tell\n"), "{resolved}");
}

#[test]
fn program_is_built_once_and_its_output_is_logged() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let folder = folder(&cluster);
    script(&folder.join("build.sh"), "#!/bin/sh\necho building >> builds\necho cannot do it >&2; exit 7\n");
    let image = "{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: made}, spec: {patterns: [kloop-test/made], \
                 entrypoint: [./made.sh], build: {command: [./build.sh]}, watch: [build.sh]}}\n---\n";
    let deployment =
        super::deployment("made", 3, 0).replace("image: busybox, command: [sleep, \"0\"]", "image: kloop-test/made");
    apply_file(&cluster, "made.yaml", &format!("{image}{deployment}"));
    let builds = || fs::read_to_string(folder.join("builds")).unwrap_or_default().lines().count();
    let reasons = "{.items[*].status.containerStatuses[0].state.waiting.reason}";
    cluster.until("all three pods wait", || {
        cluster.read("pods -l app=made", reasons) == "ErrImageBuild ErrImageBuild ErrImageBuild"
    });
    let pod = cluster.pods("app=made").remove(0);
    let message = cluster.read(&format!("pod/{pod}"), "{.status.containerStatuses[0].state.waiting.message}");
    assert!(message.ends_with("\"./build.sh\" exited with code 7:\ncannot do it"), "{message}");
    assert_eq!(cluster.ok(&format!("logs {pod}")), "cannot do it\n");
    let failed = builds();
    // The script is a watched file: once it is corrected, the back-off ends.
    script(
        &folder.join("build.sh"),
        "#!/bin/sh\necho building >> builds; echo all is well\nprintf '#!/bin/sh\\necho made runs; exec sleep 600\\n' > made.sh; chmod +x made.sh\n",
    );
    let pods = cluster.ready_pods("app=made", 3);
    assert_eq!(builds(), failed + 1, "one build for three pods");
    assert!(
        !cluster.read("pods", "{.items[*].status.containerStatuses[*].restartCount}").contains('1'),
        "no pod was started twice"
    );
    for pod in &pods {
        cluster.until("the pod runs", || cluster.log(pod, "main").ends_with("made runs\n"));
        assert_eq!(cluster.log(pod, "main"), "all is well\nmade runs\n");
    }
    cluster.ok("scale deployment made --replicas 4");
    cluster.ready_pods("app=made", 4);
    assert_eq!(builds(), failed + 1, "the program is not built again");
}

#[test]
fn program_that_a_build_will_make_is_not_missing_in_a_preview() {
    let cluster = Cluster::new();
    let folder = folder(&cluster);
    let image = "{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: made}, spec: {patterns: [kloop-test/made], \
                 entrypoint: [./made.sh], build: {command: [./build.sh]}}}\n---\n";
    apply_file(&cluster, "made.yaml", image);
    let resolved = cluster.ok("image resolve kloop-test/made");
    let program = folder.join("./made.sh").display().to_string();
    assert!(resolved.contains("Rule:         Image made\n") && resolved.contains(&program), "{resolved}");
    let pod = folder.join("pod.yaml");
    fs::write(&pod, plain("made", "kloop-test/made")).expect("written");
    let planned = cluster.ok(&format!("plan -f {}", pod.display()));
    assert!(planned.contains("started main") && planned.contains("\nconverges after "), "{planned}");
}

#[test]
fn program_is_built_in_its_working_folder() {
    let cluster = Cluster::new();
    let folder = folder(&cluster);
    fs::create_dir_all(folder.join("part")).expect("a folder");
    let build = "echo '#!/bin/sh' > made.sh; echo 'echo runs in $PWD; exec sleep 600' >> made.sh; chmod +x made.sh";
    let image = format!(
        "{{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {{name: made}}, spec: {{patterns: [kloop-test/made], \
         workingDir: part, entrypoint: [sh, -c, exec ./made.sh], build: {{command: [sh, -c, {build:?}]}}, watch: [part/*.c]}}}}"
    );
    apply_file(&cluster, "made.yaml", &image);
    let told = cluster.ok("image resolve kloop-test/made");
    let part = fs::canonicalize(folder.join("part")).expect("there");
    let last = |name: &str| {
        let line = told.lines().rfind(|line| line.trim_start().starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    assert!(last("Command").starts_with("sh -c "), "{told}");
    assert_eq!((last("Working Dir"), last("Watch")), (part.display().to_string(), "part/*.c".to_owned()), "{told}");
    let _plane = cluster.watch();
    cluster.apply(&plain("made", "kloop-test/made"));
    cluster.until("the program was built and runs", || {
        cluster.log("made", "main") == format!("runs in {}\n", part.display())
    });
}

#[test]
fn changed_sources_restart_their_containers_once() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let folder = folder(&cluster);
    let say = |word: &str| script(&folder.join("say.sh"), &format!("#!/bin/sh\necho {word}; exec sleep 600\n"));
    say("one");
    let image = "{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: say}, \
                 spec: {patterns: [./say.sh], watch: ['*.sh']}}\n---\n";
    let say_pod = plain("say", "./say.sh");
    apply_file(&cluster, "say.yaml", &format!("{image}{say_pod}---\n{}", pod("other", "Always", 2, "exec sleep 600")));
    let said = |text: &str| cluster.until(text, || cluster.log("say", "main") == text);
    said("one\n");
    cluster.until_reads("pod/other", "{.status.phase}", "Running");
    let other = cluster.pid("other");
    assert!(cluster.read("pod/say", IMAGE_ID).starts_with("./say.sh@sources:"));
    // A burst of changes causes one immediate restart and is not a crash. The control plane is stopped meanwhile, so that it sees them as
    // one burst however slowly they are written.
    signal(plane.pid(), "STOP");
    for word in ["a", "b", "two"] {
        say(word);
    }
    signal(plane.pid(), "CONT");
    said("one\ntwo\n");
    cluster.until_reads("pod/say", RESTARTS, "1");
    let event = "Container main: watched files of Image say have changed, will be restarted";
    assert!(cluster.ok("describe pod say").contains(event));
    assert_eq!(cluster.read("pod/say", "{.status.containerStatuses[0].lastState.terminated.exitCode}"), "143");
    assert_eq!(cluster.pid("other"), other, "the other pod still runs");
    // A file that is unchanged since the last control plane restarts nothing; the next control plane notices a changed one.
    let (running, pid) = (cluster.read("pod/say", IMAGE_ID), cluster.pid("say"));
    plane.end("KILL");
    let plane = cluster.watch();
    apply_file(&cluster, "new.yaml", &plain("new", "./say.sh"));
    cluster.until_reads("pod/new", IMAGE_ID, &running);
    // Its shell has read the file before the file changes again.
    cluster.until("the new pod has printed", || cluster.log("new", "main") == "two\n");
    assert_eq!((cluster.pid("say"), cluster.read("pod/say", RESTARTS)), (pid, "1".to_owned()));
    plane.end("KILL");
    say("three");
    let _plane = cluster.watch();
    for (name, restarts) in [("say", "2"), ("new", "1")] {
        // The previous attempt's log is kept, older ones are not.
        cluster.until("the new attempt has printed", || cluster.log(name, "main") == "two\nthree\n");
        cluster.until_reads(&format!("pod/{name}"), RESTARTS, restarts);
    }
}

#[test]
fn running_container_continues_until_the_build_succeeds() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let folder = folder(&cluster);
    let source = |text: &str| script(&folder.join("source"), text);
    // The build waits for a file, so that the test can look at it meanwhile.
    let build = "#!/bin/sh\necho building $(cat source)\nuntil [ -e go ]; do sleep 0.02; done\ngrep -q bad source && exit 3\n\
                 printf '#!/bin/sh\\necho %s; exec sleep 600\\n' \"$(cat source)\" > made.new; chmod +x made.new; mv made.new made.sh\n";
    script(&folder.join("build.sh"), build);
    source("one\n");
    let image = "{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: made}, spec: {patterns: [kloop-test/made], \
                 entrypoint: [./made.sh], build: {command: [./build.sh]}, watch: [source]}}\n---\n";
    apply_file(&cluster, "made.yaml", &format!("{image}{}", plain("made", "kloop-test/made")));
    cluster.until("the log shows the build while it runs", || {
        cluster.kloop("logs made").out == "building one\n"
            && cluster.read("image/made", "{.status.build.state}") == "Building"
    });
    let state = |wanted: &str| cluster.until_reads("image/made", "{.status.build.state}", wanted);
    fs::write(folder.join("go"), "").expect("written");
    cluster.until("the program runs", || cluster.log("made", "main") == "building one\none\n");
    state("Succeeded");
    let pid = cluster.pid("made");
    // A failed build leaves the running container alone, and is reported.
    source("bad\n");
    state("Failed");
    cluster.until("the failure is reported", || cluster.ok("events --for pod/made").contains("ErrImageBuild"));
    let described = cluster.ok("describe image made");
    for text in ["State:        Failed", "\"./build.sh\" exited with code 3", "Output:       building bad"] {
        assert!(described.contains(text), "{text}: {described}");
    }
    assert_eq!((cluster.pid("made"), cluster.read("pod/made", RESTARTS)), (pid, "0".to_owned()));
    for what in ["image/made", "pod/made"] {
        let why = cluster.kloop(&format!("why {what}")).out;
        assert!(
            why.contains("its last build failed: ") && why.contains("\"./build.sh\" exited with code 3"),
            "{what}: {why}"
        );
    }
    // The next build also finishes before the container is stopped.
    fs::remove_file(folder.join("go")).expect("removed");
    source("two\n");
    state("Building");
    assert_eq!((cluster.pid("made"), cluster.read("pod/made", RESTARTS)), (pid, "0".to_owned()));
    fs::write(folder.join("go"), "").expect("written");
    cluster.until_reads("pod/made", RESTARTS, "1");
    cluster.until("the new program runs", || cluster.kloop("logs made").out == "building two\ntwo\n");
    // A restart for another reason does not repeat the build's output.
    signal(cluster.pid("made"), "KILL");
    cluster.until_reads("pod/made", RESTARTS, "2");
    cluster.until("the program runs again", || cluster.kloop("logs made").out == "two\n");
    state("Succeeded");
    let told = cluster.ok("events --for pod/made");
    for text in [
        "Pulling image \"kloop-test/made\"",
        "Successfully pulled image \"kloop-test/made\"",
        "Building Image \"made\"",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert_eq!(cluster.kloop("image set kloop-test/other").code, 1);
    assert_eq!(cluster.kloop("get image other").code, 1, "no object was created");
}

#[test]
fn relative_paths_of_commands_refer_to_the_current_folder() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let folder = folder(&cluster);
    script(&folder.join("api.sh"), "#!/bin/sh\necho api $1 in $PWD; cat data; exec sleep 600\n");
    fs::write(folder.join("data"), "data\n").expect("written");
    let typed = |words: &[&str]| {
        let mut command = cluster.command();
        command.current_dir(&folder).args(words);
        let said = cluster.run_program(&mut command, "");
        assert_eq!(said.code, 0, "{words:?}: {}", said.err);
    };
    let here = fs::canonicalize(&folder).expect("there").display().to_string();
    typed(&["image", "set", "acme/api", "--entrypoint", "sh api.sh", "--command", "one"]);
    cluster.apply(&plain("api", "acme/api:1"));
    cluster.until("the program runs in the script's folder", || {
        cluster.log("api", "main") == format!("api one in {here}\ndata\n")
    });
    typed(&["run", "mine", "--image=./api.sh", "--", "two"]);
    cluster.until("the program runs in the script's folder", || {
        cluster.log("mine", "mine") == format!("api two in {here}\ndata\n")
    });
    typed(&["create", "deployment", "web", "--image=./api.sh"]);
    cluster.ready_pods("app=web", 1);
    // Without a command; with one, the image's program is not needed.
    cluster.ok("create deployment other --image=busybox");
    typed(&["set", "image", "deployment/other", "busybox=./nosuch.sh"]);
    let missing = format!("there is no file {here}/./nosuch.sh");
    cluster.until("the program is searched there", || cluster.ok("get events").contains(&missing));
}

#[test]
fn corrected_image_ends_the_back_off() {
    let cluster = Cluster::new();
    let bin = cluster.home().join("bin");
    fs::create_dir_all(&bin).expect("made");
    let path = format!("PATH={}:/usr/bin:/bin", bin.display());
    let _plane = cluster.watch_with(&["--env", &path, "--restart-backoff", "1h", "--restart-backoff-max", "1h"]);
    let reason = "{.status.containerStatuses[0].state.waiting.reason}";
    // An installed program is found even if the next retry is an hour away.
    cluster.apply(&plain("late", "kloop-test-late:1"));
    cluster.until_reads("pod/late", reason, "ImagePullBackOff");
    script(&bin.join("kloop-test-late"), "#!/bin/sh\nexec sleep 600\n");
    cluster.until_reads("pod/late", "{.status.phase}", "Running");
    // A corrected Image object ends the back-off of crashing containers.
    cluster.ok("image set kloop-test/crash --entrypoint false");
    cluster.apply(&plain("crash", "kloop-test/crash"));
    cluster.until_reads("pod/crash", reason, "CrashLoopBackOff");
    let said = cluster.run(&["image", "set", "kloop-test/crash", "--entrypoint", "sleep 600"], "");
    assert_eq!(said.code, 0, "{}", said.err);
    let running = "{.status.containerStatuses[0].state.running.startedAt}";
    cluster.until("the container runs", || !cluster.read("pod/crash", running).is_empty());
}
