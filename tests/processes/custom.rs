//! Custom resources: kinds that a definition adds, from apply to the deletion of the definition.

use crate::cluster::Cluster;
use std::path::Path;

fn fixture() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/custom/backup.yaml");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn custom_kind_behaves_like_a_built_in_one() {
    let cluster = Cluster::new();
    // The definition and its objects are applied together, without a control plane.
    assert_eq!(
        cluster.apply(&fixture()),
        "customresourcedefinition.apiextensions.k8s.io/backups.example.kloop.dev created\n\
         backup.example.kloop.dev/nightly created\nbackup.example.kloop.dev/weekly created\n"
    );
    let table = cluster.ok("get safety -o wide");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "SCHEDULE", "COPIES", "TARGET", "AGE"]);
    assert_eq!(rows[1][..8], ["nightly", "0", "3", "*", "*", "*", "2", "/var/backups"]);
    assert_eq!(rows[2][..8], ["weekly", "0", "4", "*", "*", "0", "1", "/mnt/weekly"]);
    assert_eq!(cluster.read("bk/nightly", "{.spec.target}"), r#"{"compress":"gzip","path":"/var/backups"}"#);
    cluster.ok("scale backup nightly --replicas=3");
    assert_eq!(cluster.read("backups.example.kloop.dev/nightly", "{.spec.copies}/{.metadata.generation}"), "3/2");
    cluster.ok("patch bk nightly --subresource=status --type=merge -p {\"status\":{\"copies\":3}}");
    assert_eq!(cluster.read("bk/nightly", "{.status.copies}/{.metadata.generation}"), "3/2");
    assert_eq!(cluster.ok("get bk nightly --subresource=scale -o jsonpath={.spec.replicas}/{.status.replicas}"), "3/3");
    assert_eq!(cluster.apply(&fixture()).matches("unchanged").count(), 2, "the definition and the unchanged object");
    let other = fixture().replace("copies: 2", "copies: 7");
    assert_eq!(cluster.run(&["replace", "-f", "-"], &other).out.matches("replaced").count(), 3);
    assert_eq!(cluster.read("bk/nightly", "{.spec.copies}"), "7");
    assert!(cluster.ok("explain backups.example.kloop.dev.spec.schedule").contains("When, as cron writes it."));
    assert!(cluster.ok("explain bk.spec.schedule").contains("When, as cron writes it."));
    assert!(cluster.ok("api-resources --api-group example.kloop.dev").contains("example.kloop.dev/v1"));
}

#[test]
fn object_against_its_schema_is_refused_and_changes_nothing() {
    let cluster = Cluster::new();
    cluster.apply(&fixture());
    let backup = |spec: &str| {
        format!("{{apiVersion: example.kloop.dev/v1, kind: Backup, metadata: {{name: nightly}}, spec: {spec}}}")
    };
    let cases = [
        (
            "{schedule: 0 3 * * *, copies: 10}",
            "spec.copies: Invalid value: 10: spec.copies in body should be less than or equal to 9",
        ),
        (
            "{schedule: 0 3 * * *, copies: many}",
            "spec.copies: Invalid value: \"string\": spec.copies in body must be of type integer: \"string\"",
        ),
        ("{schedule: daily}", r"spec.schedule in body should match '^(\S+ ){4}\S+$'"),
        (
            "{schedule: 0 3 * * *, target: {compress: zip}}",
            "spec.target.compress: Unsupported value: \"zip\": supported values: \"none\", \"gzip\", \"zstd\"",
        ),
        ("{schedule: 0 3 * * *, copy: 3}", "strict decoding error: unknown field \"spec.copy\""),
    ];
    let before = cluster.ok("get bk nightly -o yaml");
    for (spec, expected) in cases {
        let said = cluster.run(&["apply", "-f", "-"], &backup(spec));
        assert_eq!(said.code, 1, "{spec}");
        assert!(said.err.contains(expected), "{spec}: {}", said.err);
    }
    assert_eq!(cluster.ok("get bk nightly -o yaml"), before);
}

/// Returns a definition of the kind Thing with these versions: name, whether stored, whether with a status subresource, schema of `spec`.
fn things(versions: &[(&str, bool, bool, &str)]) -> String {
    let version = |(name, stored, status, spec): &(&str, bool, bool, &str)| {
        let subresources = if *status { "{status: {}}" } else { "{}" };
        format!(
            "  - {{name: {name}, served: true, storage: {stored}, subresources: {subresources}, schema: {{openAPIV3Schema: {{type: object, \
             properties: {{spec: {spec}, status: {{type: object, properties: {{seen: {{type: integer}}}}}}}}}}}}}}\n"
        )
    };
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.example.dev}}\nspec:\n  \
         group: example.dev\n  scope: Namespaced\n  names: {{plural: things, kind: Thing}}\n  versions:\n{}",
        versions.iter().map(version).collect::<String>()
    )
}

fn thing(version: &str, rest: &str) -> String {
    format!("{{apiVersion: example.dev/{version}, kind: Thing, metadata: {{name: t}}, {rest}}}")
}

#[test]
fn preserved_unknown_fields_are_stored_and_others_are_pruned() {
    let cluster = Cluster::new();
    let spec = "{type: object, properties: {volumes: {x-kubernetes-preserve-unknown-fields: true}, plain: {type: string}, \
                maybe: {type: string, nullable: true}, some: {type: string, default: d}}}";
    cluster.apply(&things(&[("v1", true, true, spec)]));
    // As in Argo Rollouts: a list where the schema names no type.
    let rest = "spec: {volumes: [{name: one, emptyDir: {}}, {name: two}], plain: null, maybe: null, some: null}, status: {seen: 3}";
    let said = cluster.run(&["create", "-f", "-"], &thing("v1", rest));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(
        cluster.read("thing/t", "{.spec}"),
        r#"{"maybe":null,"some":"d","volumes":[{"emptyDir":{},"name":"one"},{"name":"two"}]}"#
    );
    assert_eq!(cluster.read("thing/t", "{.status}"), "", "only /status writes the status");
    let patch = r#"{"status":{"seen":4},"spec":{"plain":"x"}}"#;
    cluster.ok(&format!("patch thing t --subresource=status --type=merge -p {patch}"));
    assert_eq!(cluster.read("thing/t", "{.status.seen}/{.spec.plain}"), "4/");
}

#[test]
fn each_version_is_checked_by_its_own_schema() {
    let cluster = Cluster::new();
    let count = |more: &str| format!("{{type: object, properties: {{count: {{type: integer{more}}}}}}}");
    let (new, old) = (count(""), count(", maximum: 5"));
    cluster.apply(&things(&[("v1", true, false, &new), ("v1beta1", false, false, &old)]));
    let said = cluster.run(&["create", "-f", "-"], &thing("v1beta1", "spec: {count: 9}"));
    assert!(said.err.contains("spec.count in body should be less than or equal to 5"), "{}", said.err);
    let said = cluster.run(&["create", "-f", "-"], &thing("v1", "spec: {count: 9}"));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let patch =
        |resource: &str| cluster.run(&["patch", resource, "t", "--type=merge", "-p", r#"{"spec":{"count":8}}"#], "");
    let said = patch("things.v1beta1.example.dev");
    assert!(said.err.contains("spec.count in body should be less than or equal to 5"), "{}", said.err);
    assert_eq!(patch("things.v1.example.dev").code, 0);
    assert_eq!(cluster.read("thing/t", "{.spec.count}"), "8");
}

#[test]
fn stored_version_stays_in_its_definition() {
    let cluster = Cluster::new();
    let v2 = "    - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}";
    let definition = fixture().split_once("\n---\n").unwrap().0.to_owned();
    cluster.apply(&format!("{definition}\n{v2}"));
    let moved = format!("{definition}\n{v2}")
        .replace("storage: false", "storage: yes")
        .replace("storage: true", "storage: false");
    cluster.apply(&moved.replace("storage: yes", "storage: true"));
    assert_eq!(cluster.read("crd/backups.example.kloop.dev", "{.status.storedVersions}"), r#"["v1","v2"]"#);
    let patch = r#"[{"op":"remove","path":"/spec/versions/0"}]"#;
    let said = cluster.run(&["patch", "crd", "backups.example.kloop.dev", "--type=json", "-p", patch], "");
    assert!(
        said.err.contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"),
        "{}",
        said.err
    );
    let group = definition.replace("example.kloop.dev", "example.k8s.io");
    let said = cluster.run(&["apply", "-f", "-"], &group);
    assert!(said.err.contains("metadata.annotations[api-approved.kubernetes.io]: Required value"), "{}", said.err);
    let said = cluster.run(&["apply", "-f", "-"], &definition.replace("example.kloop.dev", "example"));
    assert!(said.err.contains("should be a domain with at least one dot"), "{}", said.err);
}

#[test]
fn definition_is_created_before_its_objects() {
    let cluster = Cluster::new();
    let (definition, objects) =
        fixture().split_once("\n---\n").map(|(one, more)| (one.to_owned(), more.to_owned())).unwrap();
    let said = cluster.apply(&format!("{objects}\n---\n{definition}"));
    assert!(said.starts_with("customresourcedefinition"), "{said}");
    assert_eq!(said.matches("created").count(), 3, "{said}");
}

#[test]
fn custom_objects_are_deleted_with_definition_or_namespace() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&fixture());
    cluster.ok("wait --for=condition=Established crd/backups.example.kloop.dev");
    cluster.ok("create namespace team");
    cluster.apply("{apiVersion: example.kloop.dev/v1, kind: Backup, metadata: {name: theirs, namespace: team}, spec: {schedule: 0 3 * * *}}");
    // The dependents of an object are deleted with it.
    let uid = cluster.read("bk/nightly", "{.metadata.uid}");
    let owner = format!("{{apiVersion: example.kloop.dev/v1, kind: Backup, name: nightly, uid: {uid}}}");
    cluster
        .apply(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: owned, ownerReferences: [{owner}]}}}}"));
    cluster.ok("delete namespace team");
    assert_eq!(cluster.ok("get bk -A -o name").lines().count(), 2);
    cluster.ok("delete bk nightly");
    cluster.until("the owned one is gone", || !cluster.ok("get configmaps -o name").contains("owned"));
    // Objects of a built-in kind are not deleted with a definition of the same name.
    let (definition, _) = fixture().split_once("\n---\n").map(|(one, more)| (one.to_owned(), more.to_owned())).unwrap();
    cluster.apply(
        &definition
            .replace("backups", "images")
            .replace("example.kloop.dev", "kloop.dev")
            .replace("bk", "bki")
            .replace("safety", "none"),
    );
    cluster.apply("{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: kept}, spec: {patterns: [kept], entrypoint: [sh]}}");
    cluster.ok("delete crd images.kloop.dev");
    assert_eq!(cluster.ok("get images.kloop.dev -o name"), "image.kloop.dev/kept\n");
    // A definition waits for an object with a finalizer.
    cluster.ok("patch bk weekly --type=merge -p {\"metadata\":{\"finalizers\":[\"example.kloop.dev/hold\"]}}");
    cluster.ok("delete crd backups.example.kloop.dev --wait=false");
    let terminating = "{.status.conditions[?(@.type==\"Terminating\")].reason}";
    cluster.until("the definition waits", || {
        cluster.read("crd/backups.example.kloop.dev", terminating) == "InstanceDeletionInProgress"
    });
    let more = "{apiVersion: example.kloop.dev/v1, kind: Backup, metadata: {name: late}, spec: {schedule: 0 3 * * *}}";
    let said = cluster.run(&["apply", "-f", "-"], more);
    assert!(said.err.contains("create not allowed while custom resource definition is terminating"), "{}", said.err);
    cluster.ok("patch bk weekly --type=merge -p {\"metadata\":{\"finalizers\":null}}");
    cluster.until("the definition is gone", || !cluster.ok("get crd -o name").contains("backups"));
    let said = cluster.run(&["get", "backups"], "");
    let refused = "error: the server doesn't have a resource type \"backups\"";
    assert_eq!(said.err.lines().next(), Some(refused));
}

#[test]
fn local_verbs_answer_as_kubectl_does_for_what_they_cannot_change() {
    let cluster = Cluster::new();
    let widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: far, resourceVersion: '7'}, spec: {a: 1}}";
    let service = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}";
    let local = |words: &[&str], manifest: &str| {
        let said = cluster.run(&[words, &["--local", "-f", "-", "-o", "json"]].concat(), manifest);
        (said.out.split_whitespace().collect::<String>(), said.err)
    };
    let kept = r#""name":"w","namespace":"far","resourceVersion":"7"}"#;
    for words in [
        &["patch", "--type=merge", "-p", "{spec: {b: 2}}"][..],
        &["patch", "--type=json", "-p", "[{op: add, path: /spec/b, value: 2}]"],
        &["label", "x=y"],
        &["annotate", "x=y"],
    ] {
        let (out, err) = local(words, widget);
        assert!(out.contains(kept) && err.is_empty(), "{words:?}: {out}{err}");
    }
    let strategic =
        "error: strategic merge patch is not supported for example.com/v1, Kind=Widget locally, try --type merge\n";
    assert_eq!(local(&["patch", "-p", "{spec: {b: 2}}"], widget), (String::new(), strategic.to_owned()));
    let undecoded = "error: unable to decode \"STDIN\": no kind \"Widget\" is registered for version \"example.com/v1\" in scheme \"pkg/scheme/scheme.go:28\"\n";
    let without_pods = "error: service/s the object is not a pod or does not have a pod template: *v1.Service\n";
    for words in [
        &["set", "env", "A=B"][..],
        &["set", "image", "a=b"],
        &["set", "resources", "--limits=cpu=1"],
        &["set", "serviceaccount", "a"],
    ] {
        assert_eq!(local(words, widget), (String::new(), undecoded.to_owned()), "{words:?}");
        assert_eq!(local(words, service), (String::new(), without_pods.to_owned()), "{words:?}");
    }
    cluster.apply(service);
    let said = cluster.kloop("set image service/s a=b");
    assert_eq!(said.err, without_pods.replace("service/s", "services/s"));
}

#[test]
fn manifest_folder_is_not_printed() {
    let cluster = Cluster::new();
    let text = |image: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{selector: {{matchLabels: {{a: b}}}}, \
             template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: main, image: {image}}}]}}}}}}}}"
        )
    };
    let manifest = cluster.home().join("web.yaml");
    std::fs::write(&manifest, text("./server")).unwrap();
    let file = manifest.display();
    cluster.ok(&format!("create -f {file}"));
    assert!(cluster.ok("get deploy web -o yaml").contains("kloop.dev/manifest-dir: "), "the object has the annotation");
    for line in [
        format!("replace -f {file} -o yaml"),
        format!("apply -f {file} -o yaml"),
        format!("set image --local -f {file} main=./other -o yaml"),
        "set image deployment/web main=./other -o yaml".to_owned(),
        "label deployment/web x=y -o yaml".to_owned(),
        "patch deployment/web -p {\"spec\":{\"replicas\":2}} -o yaml".to_owned(),
    ] {
        let said = cluster.ok(&line);
        assert!(said.contains("image: ./") && !said.contains("kloop.dev/manifest-dir"), "kloop {line}\n{said}");
    }
}
