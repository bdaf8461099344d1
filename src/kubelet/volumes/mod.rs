//! A pod's volumes: the content of each, missing sources, and the mounts of its containers.
//!
//! Knows: every volume source that works without a cloud provider. Never: writes a file; `runtime` does, from the content computed here.
//! Start reading at [`content::source`]; `files` has ConfigMaps, Secrets and other sources that consist of files.

mod claim;
mod content;
mod dns;
mod files;
mod hosts;
mod token;
mod view;

pub use content::missing;
pub use dns::{names, report_unusable_names};
pub use files::show_annotations;
pub use token::renewal as token_renewal;
pub use view::{files, order_refresh, paths, report_shared_files};

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use crate::world::Report;
    use crate::world::volume::{ContainerFiles, FilesystemView, Volume, VolumeContent};
    use serde_json::{Value, json};

    fn meta(name: &str) -> Value {
        json!({"name": name, "namespace": "default", "uid": name})
    }

    fn machine(volumes: Value) -> TestMachine {
        let mounts: Vec<Value> = volumes.as_array().unwrap().iter().map(|volume| {
            json!({"name": volume["name"], "mountPath": format!("/m/{}", volume["name"].as_str().unwrap())})
        }).collect();
        let container = json!({"name": "c", "image": "a", "volumeMounts": mounts, "env": [{"name": "WHO", "value": "me"}],
            "resources": {"limits": {"cpu": "1500m"}}});
        let mut machine = TestMachine::new(pod(json!({"volumes": volumes, "containers": [container]})));
        machine.put(
            "configmaps",
            json!({"metadata": meta("cm"), "data": {"a": "1", "b": "2"}, "binaryData": {"bin": "/wA="}}),
        );
        machine.put("secrets", json!({"metadata": meta("sec"), "data": {"key": "c2VjcmV0"}}));
        machine
    }

    #[test]
    fn volume_of_annotations_follows_the_process_ids() {
        let item = json!({"path": "a", "fieldRef": {"fieldPath": "metadata.annotations"}});
        let downward = json!({"items": [item]});
        for source in [json!({"downwardAPI": downward}), json!({"projected": {"sources": [{"downwardAPI": downward}]}})]
        {
            let mut volume = source;
            volume["name"] = "d".into();
            let mut machine = machine(json!([volume]));
            machine.run_to(1);
            let (_, volumes) = machine.refreshes.last().expect("it was written again");
            assert!(lines(volumes)[0].contains("kloop.dev/pid"), "{:?}", lines(volumes));
        }
    }

    fn started(machine: &mut TestMachine) -> ContainerFiles {
        machine.settle();
        machine.starts.last().expect("it was started").files.clone()
    }

    /// Returns `name: path mode content`, a line for each file.
    fn file_lines(files: &ContainerFiles) -> Vec<String> {
        lines(&files.volumes)
    }

    fn lines(volumes: &[Volume]) -> Vec<String> {
        let mut lines = Vec::new();
        for volume in volumes {
            match &volume.source {
                VolumeContent::Files(all) => lines.extend(all.iter().map(|file| {
                    let content = String::from_utf8_lossy(&file.content);
                    format!("{} {} {:o} {content}", volume.name, file.path, file.mode)
                })),
                other => lines.push(format!("{} {other:?}", volume.name)),
            }
        }
        lines.retain(|line| !line.starts_with("etc."));
        lines
    }

    /// Returns the claims of the token in a line of [`lines`].
    fn claims(line: &str) -> Value {
        serde_json::from_str(line.rsplit(' ').next().unwrap()).unwrap()
    }

    /// Messages of failed mounts.
    fn failures(machine: &TestMachine) -> Vec<&str> {
        let failed = machine.events.iter().filter(|event| event.reason == "FailedMount");
        failed.map(|event| &*event.message).collect()
    }

    #[test]
    fn missing_volume_holds_the_pod_until_it_appears() {
        let volumes = json!([{"name": "api", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
            {"name": "may", "secret": {"secretName": "none", "optional": true}},
            {"name": "cfg", "configMap": {"name": "new"}}]);
        let mut machine = machine(volumes);
        machine.run_to(100);
        assert_eq!(machine.summary(), "Pending c=ContainerCreating/0");
        assert_eq!(machine.condition("PodReadyToStartContainers"), "False");
        assert_eq!(failures(&machine), ["MountVolume.SetUp failed for volume \"cfg\" : configmap \"new\" not found"]);
        machine.put("configmaps", json!({"metadata": meta("new")}));
        machine.settle();
        assert_eq!(machine.summary(), "Running c+=running/0");
    }

    #[test]
    fn missing_volume_source_error_reads_like_kubernetes() {
        let cases = [
            (json!({"secret": {"secretName": "no"}}), "secret \"no\" not found"),
            (
                json!({"configMap": {"name": "cm", "items": [{"key": "z", "path": "z"}]}}),
                "references non-existent config key: z",
            ),
            (
                json!({"secret": {"secretName": "sec", "items": [{"key": "z", "path": "z"}]}}),
                "references non-existent secret key: z",
            ),
            (json!({"projected": {"sources": [{"secret": {"name": "no"}}]}}), "secret \"no\" not found"),
            (json!({"persistentVolumeClaim": {"claimName": "no"}}), "persistentvolumeclaim \"no\" not found"),
            (json!({"nfs": {"server": "s", "path": "/"}}), "this kind of volume is not supported by this node"),
        ];
        for (mut volume, message) in cases {
            volume["name"] = "v".into();
            let mut machine = machine(json!([volume]));
            machine.settle();
            let expected = format!("MountVolume.SetUp failed for volume \"v\" : {message}");
            assert_eq!(failures(&machine), [expected]);
        }
    }

    #[test]
    fn files_of_a_pod_are_bounded_together() {
        let items = |count: usize| -> Vec<Value> {
            (0..count).map(|index| json!({"key": "a", "path": index.to_string()})).collect()
        };
        let volume = |name: &str, count| json!({"name": name, "configMap": {"name": "large", "items": items(count)}});
        for (volumes, is_refused) in [
            (json!([volume("v", 20)]), false),
            (json!([volume("v", 30)]), true),
            (json!([volume("u", 15), volume("v", 15)]), true),
        ] {
            let mut machine = machine(volumes);
            machine.put("configmaps", json!({"metadata": meta("large"), "data": {"a": "x".repeat(1 << 20)}}));
            machine.settle();
            let why =
                "MountVolume.SetUp failed for volume \"v\" : the files of the pod's volumes take more than 24 MiB: ";
            assert_eq!(failures(&machine).iter().any(|failure| failure.starts_with(why)), is_refused);
            assert_eq!(machine.starts.is_empty(), is_refused);
        }
    }

    #[test]
    fn image_volume_shows_the_files_that_an_image_object_names() {
        let mut machine = machine(json!([{"name": "v", "image": {"reference": "example.com/model:1"}}]));
        machine.settle();
        let why = "no Image object names the files of \"example.com/model:1\": \
                   run: kloop image set example.com/model:1 --files FOLDER";
        assert_eq!(failures(&machine), [format!("MountVolume.SetUp failed for volume \"v\" : {why}")]);
        let metadata = json!({"name": "m", "uid": "m", "annotations": {"kloop.dev/manifest-dir": "/app"}});
        let spec = json!({"patterns": ["example.com/model"], "files": "./model"});
        machine.put("images.kloop.dev", json!({"metadata": metadata, "spec": spec}));
        machine.settle();
        assert_eq!(machine.summary(), "Running c+=running/0");
        let files = started(&mut machine);
        assert_eq!(file_lines(&files), ["v Host { path: \"/app/model\", kind: \"Directory\" }"]);
        assert!(files.mounts.iter().any(|mount| mount.path == "/m/v" && mount.read_only), "images are read-only");
    }

    #[test]
    fn image_volume_needs_a_plain_path() {
        for files in ["model", "/data/../model"] {
            let mut machine = machine(json!([{"name": "v", "image": {"reference": "model:1"}}]));
            let spec = json!({"patterns": ["model"], "files": files});
            machine.put("images.kloop.dev", json!({"metadata": {"name": "m", "uid": "m"}, "spec": spec}));
            machine.settle();
            let why = failures(&machine).first().map(|why| why.ends_with(&format!("manifest's folder: {files}")));
            assert_eq!(why, Some(true), "{files}");
        }
    }

    #[test]
    fn ephemeral_volume_is_not_mounted_from_the_claim_of_others() {
        let mut machine = machine(
            json!([{"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}]),
        );
        let host = json!({"hostPath": {"path": "/secret"}});
        machine.put("persistentvolumes", json!({"metadata": {"name": "v", "uid": "v"}, "spec": host}));
        let mut claim = json!({"metadata": meta("p-d"), "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
        machine.put("persistentvolumeclaims", claim.clone());
        machine.run_to(100);
        let why = "PVC default/p-d was not created for pod default/p (pod is not owner)";
        assert_eq!(failures(&machine), [format!("MountVolume.SetUp failed for volume \"d\" : {why}")]);
        assert!(machine.starts.is_empty());
        claim["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true}]);
        machine.put("persistentvolumeclaims", claim);
        machine.settle();
        assert_eq!(machine.summary(), "Running c+=running/0");
    }

    #[test]
    fn files_from_everywhere() {
        let field = |path: &str| json!({"path": path.trim_start_matches("metadata."), "fieldRef": {"fieldPath": path}});
        let limit = json!({"path": "cpu", "mode": 0o400, "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}});
        let cases = vec![
            (json!({"configMap": {"name": "cm"}}), vec!["v a 644 1", "v b 644 2", "v bin 644 \u{fffd}\0"]),
            (
                json!({"configMap": {"name": "cm", "defaultMode": 0o600, "items": [{"key": "a", "path": "x/y"}, {"key": "b", "path": "b", "mode": 0o444}]}}),
                vec!["v x/y 600 1", "v b 444 2"],
            ),
            (json!({"configMap": {"name": "cm", "optional": true, "items": [{"key": "z", "path": "z"}]}}), vec![]),
            (json!({"configMap": {"name": "none", "optional": true}}), vec![]),
            (json!({"secret": {"secretName": "sec", "defaultMode": 0o400}}), vec!["v key 400 secret"]),
            (
                json!({"downwardAPI": {"items": [field("metadata.name"), field("metadata.labels"), limit]}}),
                vec!["v name 644 p", "v labels 644 app=\"web\"", "v cpu 400 1500"],
            ),
            (
                json!({"projected": {"defaultMode": 0o440, "sources": [
                    {"configMap": {"name": "cm", "items": [{"key": "a", "path": "same"}]}},
                    {"secret": {"name": "sec", "items": [{"key": "key", "path": "same"}]}},
                    {"downwardAPI": {"items": [field("metadata.namespace")]}}]}}),
                vec!["v same 440 secret", "v namespace 440 default"],
            ),
            (json!({"emptyDir": {}}), vec!["v Empty"]),
            (json!({"hostPath": {"path": "/x", "type": "File"}}), vec!["v Host { path: \"/x\", kind: \"File\" }"]),
        ];
        for (mut volume, expected) in cases {
            volume["name"] = "v".into();
            let mut machine = machine(json!([volume]));
            assert_eq!(file_lines(&started(&mut machine)), expected, "{volume}");
        }
    }

    #[test]
    fn token_names_its_pod() {
        let source = json!({"serviceAccountToken": {"path": "token", "audience": "vault"}});
        let mut machine = machine(json!([{"name": "v", "projected": {"sources": [source]}}]));
        let claims = claims(&file_lines(&started(&mut machine))[0]);
        assert_eq!(claims["aud"], json!(["vault"]));
        assert_eq!(claims["sub"], "system:serviceaccount:default:default");
        assert_eq!(claims["kubernetes.io"]["pod"], json!({"name": "p", "uid": "uid-p"}));
    }

    #[test]
    fn token_is_renewed_before_it_expires() {
        // (audience, requested lifetime, lifetime of the token, seconds until it is renewed)
        let usual = 365 * 24 * 3600;
        for (audience, requested, lifetime, renewed) in [
            ("vault", 600, 600, Some(480)),
            ("vault", 3607, 3607, Some(2884)),
            ("", 3600, 3600, Some(2880)),
            ("vault", 1_000_000, 1_000_000, Some(86_400)),
            ("", 3607, usual, None),
        ] {
            let source =
                json!({"serviceAccountToken": {"path": "t", "audience": audience, "expirationSeconds": requested}});
            let mut machine = machine(json!([{"name": "v", "projected": {"sources": [source]}}]));
            let first = claims(&file_lines(&started(&mut machine))[0]);
            assert_eq!(first["exp"].as_i64(), first["iat"].as_i64().map(|issued| issued + lifetime), "{requested}");
            let before = machine.refreshes.len();
            machine.run_to(renewed.unwrap_or(90_000) - 1);
            assert_eq!(machine.refreshes.len(), before, "{requested}: too early");
            machine.run_to(renewed.unwrap_or(90_000) + 1);
            let renewals = machine.refreshes[before..].iter();
            let renewals: Vec<(i64, Value)> =
                renewals.map(|(second, volumes)| (*second, claims(&lines(volumes)[0])["iat"].clone())).collect();
            let expected = renewed.map(|after| (after, json!(first["iat"].as_i64().unwrap() + after)));
            assert_eq!(renewals, Vec::from_iter(expected), "{requested}");
        }
    }

    #[test]
    fn mounts_say_where_and_how() {
        let mounts = json!([{"name": "e", "mountPath": "/data", "readOnly": true}, {"name": "e", "mountPath": "/logs", "subPathExpr": "of/$(WHO)"},
            {"name": "f", "mountPath": "/etc/app/a", "subPath": "a"}]);
        let volumes = json!([{"name": "e", "emptyDir": {}}, {"name": "f", "configMap": {"name": "cm"}}]);
        let mut machine = machine(volumes);
        let mut changed = machine.pod();
        changed.0["spec"]["containers"][0]["volumeMounts"] = mounts;
        machine.put("pods", changed.0);
        let files = started(&mut machine);
        assert_eq!(files.view, FilesystemView::Private);
        let mounts: Vec<String> = files
            .mounts
            .iter()
            .filter(|mount| !mount.volume.contains('.'))
            .map(|mount| {
                format!(
                    "{}/{} at {} {}",
                    mount.volume,
                    mount.sub_path,
                    mount.path,
                    if mount.read_only { "ro" } else { "rw" }
                )
            })
            .collect();
        assert_eq!(mounts, ["e/ at /data ro", "e/of/me at /logs rw", "f/a at /etc/app/a ro"]);
        let mut changed = machine.pod();
        changed.0["spec"]["containers"][0]["volumeMounts"][1]["subPathExpr"] = "$(NOBODY)".into();
        changed.0["metadata"]["uid"] = "uid-q".into();
        changed.0["status"] = json!({});
        machine.put("pods", changed.0);
        machine.settle();
        assert!(machine.summary().contains("CreateContainerConfigError"), "{}", machine.summary());
    }

    #[test]
    fn pods_see_files_under_a_layer_unless_they_say_otherwise() {
        for (annotation, of_image, expected) in [
            (None, None, FilesystemView::Private),
            (Some("private"), Some("host"), FilesystemView::Private),
            (Some("host"), None, FilesystemView::Host),
            (None, Some("host"), FilesystemView::Host),
            (None, Some("private"), FilesystemView::Private),
            (Some("hots"), None, FilesystemView::Private),
        ] {
            let api = json!({"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
            let mut machine = machine(json!([api]));
            if let Some(value) = annotation {
                let mut changed = machine.pod();
                changed.0["metadata"]["annotations"] = json!({"kloop.dev/filesystem": value});
                machine.put("pods", changed.0);
            }
            if let Some(value) = of_image {
                let spec = json!({"patterns": ["a"], "filesystem": value});
                machine.put(
                    "images.kloop.dev",
                    json!({"kind": "Image", "metadata": {"name": "a", "uid": "a"}, "spec": spec}),
                );
            }
            let files = started(&mut machine);
            assert_eq!(files.view, expected, "{annotation:?} {of_image:?}");
            assert_eq!(files.volumes.is_empty(), expected == FilesystemView::Host, "the token that every pod is given");
            assert!(!machine.reasons().contains(&"FilesShared"), "what was asked for is not told");
        }
    }

    #[test]
    fn missing_overlay_is_reported_once() {
        let warning_text = |spec: Value, annotation: Option<&str>, allowed: bool| {
            let mut machine = TestMachine::new(pod(spec));
            machine.world.settings.private_files = allowed;
            if let Some(value) = annotation {
                let mut changed = machine.pod();
                changed.0["metadata"]["annotations"] = json!({"kloop.dev/filesystem": value});
                machine.put("pods", changed.0);
            }
            machine.run_to(100);
            assert_eq!(machine.starts[0].files.view, FilesystemView::Host);
            let told: Vec<_> = machine.events.iter().filter(|event| event.reason == "FilesShared").collect();
            assert!(told.len() < 2);
            told.first().map(|event| event.message.to_string()).unwrap_or_default()
        };
        let plain = json!({"containers": [{"name": "c", "image": "a"}]});
        let mut named = plain.clone();
        named["hostAliases"] = json!([{"ip": "1.2.3.4", "hostnames": ["far"]}]);
        assert!(
            warning_text(plain.clone(), None, false).starts_with("mount namespaces are not available on this machine")
        );
        assert_eq!(warning_text(plain, Some("host"), false), "");
        assert!(warning_text(named, Some("host"), true).ends_with("; hostAliases has no effect"));
    }

    #[test]
    fn paths_are_reported_without_mounts() {
        for (annotation, allowed, told) in [(Some("host"), true, 1), (None, false, 1), (Some("private"), false, 1)] {
            let mut machine = machine(json!([{"name": "my-data", "emptyDir": {}}]));
            machine.world.settings.private_files = allowed;
            let mut changed = machine.pod();
            if let Some(value) = annotation {
                changed.0["metadata"]["annotations"] = json!({"kloop.dev/filesystem": value});
            }
            machine.put("pods", changed.0);
            let files = started(&mut machine);
            assert_eq!((files.view, files.volumes.len(), files.mounts.len()), (FilesystemView::Host, 1, 0));
            assert_eq!(machine.starts[0].volume_paths, [("KLOOP_VOLUME_MY_DATA".to_owned(), "my-data".to_owned())]);
            machine.run_to(100);
            assert_eq!(machine.reasons().iter().filter(|reason| **reason == "VolumesNotMounted").count(), told);
        }
    }

    #[test]
    fn volume_whose_source_is_gone_does_not_stop_the_others() {
        let mut machine = machine(json!([
            {"name": "gone", "secret": {"secretName": "sec"}},
            {"name": "may", "secret": {"secretName": "sec", "optional": true}},
            {"name": "kept", "configMap": {"name": "cm"}},
        ]));
        machine.run_to(5);
        machine.refreshes.clear();
        let secret = machine.world.find("secrets", "default", "sec").unwrap().clone();
        machine.world.remove(&secret.key);
        machine.run_to(10);
        machine.put("configmaps", json!({"metadata": meta("cm"), "data": {"a": "new"}}));
        machine.run_to(30);
        let refreshed: Vec<Vec<String>> = machine.refreshes.iter().map(|(_, volumes)| lines(volumes)).collect();
        assert_eq!(
            refreshed,
            [vec!["kept a 644 1", "kept b 644 2", "kept bin 644 \u{fffd}\0"], vec!["kept a 644 new"]]
        );
        let failed = "MountVolume.SetUp failed for volume \"gone\" : secret \"sec\" not found";
        assert_eq!(failures(&machine), [failed, failed], "once for each update");
        machine.refreshes.clear();
        machine.put("secrets", json!({"metadata": meta("sec"), "data": {"key": "bmV3"}}));
        machine.run_to(40);
        let refreshed = machine.refreshes.iter().flat_map(|(_, volumes)| lines(volumes)).collect::<Vec<_>>();
        assert_eq!(refreshed, ["gone key 644 new", "may key 644 new", "kept a 644 new"]);
    }

    #[test]
    fn volume_that_could_not_be_written_is_written_again() {
        let mut machine = machine(json!([{"name": "v", "configMap": {"name": "cm"}}]));
        machine.run_to(5);
        machine.put("configmaps", json!({"metadata": meta("cm"), "data": {"a": "new"}}));
        machine.run_to(10);
        machine.refreshes.clear();
        let (pod_uid, why) = (machine.world.facts.pods.iter().next().unwrap().0.clone(), "No space left on device");
        let at = machine.world.now;
        machine.world.facts.apply_report(Report::NotRefreshed { pod_uid, at, why: why.to_owned() });
        machine.run_to(19);
        assert!(machine.refreshes.is_empty(), "there is a pause");
        machine.run_to(60);
        assert_eq!(machine.refreshes.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [20]);
        assert_eq!(failures(&machine), [why]);
    }

    #[test]
    fn volume_change_reaches_running_pods_once() {
        let mut machine = machine(json!([{"name": "v", "configMap": {"name": "cm"}}]));
        machine.run_to(5);
        machine.take_messages();
        machine.put("configmaps", json!({"metadata": meta("cm"), "data": {"a": "new"}}));
        let row = machine.world.find("configmaps", "default", "cm").unwrap().clone();
        assert_eq!((super::super::LOOP.concerns)(&machine.world, &row).len(), 1, "it wakes the pod");
        machine.put("configmaps", json!({"metadata": meta("c"), "data": {}}));
        let unrelated = machine.world.find("configmaps", "default", "c").unwrap().clone();
        assert_eq!((super::super::LOOP.concerns)(&machine.world, &unrelated), [], "only its container has this name");
        machine.run_to(10);
        let log = machine.take_messages();
        assert_eq!(log.len(), 1, "{log:?}");
        assert!(log[0].contains("a 644 3 bytes"), "{log:?}");
        machine.world.remove(&row.key);
        machine.run_to(20);
        let refreshed: Vec<String> = machine.refreshes.iter().rev().take(1).flat_map(|(_, all)| lines(all)).collect();
        assert_eq!((machine.take_messages().len(), refreshed), (1, vec![]), "what was mounted stays");
        machine.put("configmaps", json!({"metadata": meta("cm"), "data": {"a": "new"}}));
        machine.restart();
        machine.run_to(30);
        assert_eq!(machine.summary(), "Running c+=running/0");
    }
}
