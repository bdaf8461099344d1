//! Small kustomizations, and the expected results.

use super::{FileAccess, FoundPath, build};
use crate::object::yaml;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files in memory, below `/k`.
struct Memory(BTreeMap<PathBuf, String>);

impl FileAccess for Memory {
    fn find(&self, path: &Path) -> Result<FoundPath, String> {
        if self.0.contains_key(path) {
            Ok(FoundPath::File(path.to_owned()))
        } else if self.0.keys().any(|file| file.starts_with(path)) {
            Ok(FoundPath::Folder(path.to_owned()))
        } else {
            Err(format!("lstat {}: no such file or directory", path.display()))
        }
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        Ok(self.0[path].clone().into_bytes())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        Path::new("/k").join(path)
    }
}

/// Parses files from a text: `== name` starts one.
fn files(text: &str) -> Memory {
    let parts = text.split("== ").skip(1).filter_map(|part| part.split_once('\n'));
    Memory(parts.map(|(name, text)| (Path::new("/k").join(name), text.to_owned())).collect())
}

pub fn built(text: &str) -> Result<String, String> {
    built_of(text, "over").0
}

fn built_of(text: &str, folder: &str) -> (Result<String, String>, Vec<String>) {
    let mut warnings = Vec::new();
    let built = build(&files(text), folder, &mut warnings);
    let text = built.map(|all| all.iter().map(|one| yaml::to_yaml(&one.object.0)).collect::<Vec<_>>().join("---\n"));
    (text, warnings)
}

/// A base with most kinds of references.
const BASE: &str = "\
== base/kustomization.yaml
resources: [web.yaml]
configMapGenerator:
- {name: conf, literals: [a=1]}
secretGenerator:
- {name: key, literals: [k=v]}
== base/web.yaml
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1
        env: [{name: A, value: a}, {name: B, value: b}]
        envFrom: [{configMapRef: {name: conf}}, {secretRef: {name: key}}]
      volumes: [{name: v, configMap: {name: conf}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
";

/// Returns the built Deployment.
fn deployment(over: &str) -> serde_json::Value {
    let text = format!("{BASE}== over/kustomization.yaml\nresources: [../base]\n{over}");
    let mut warnings = Vec::new();
    let built = build(&files(&text), "over", &mut warnings).unwrap();
    built.into_iter().find(|resource| resource.object.kind() == "Deployment").unwrap().object.0
}

#[test]
fn names_and_references_change_together() {
    let text = format!("{BASE}== over/kustomization.yaml\nresources: [../base]\nnamePrefix: p-\nnameSuffix: -s\n");
    let built = built(&text).unwrap();
    let names: Vec<&str> =
        built.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("name: p-")).collect();
    let (conf, key) = ("conf-s-h29d89cmmt", "key-s-ftgtgc4t9f");
    // The objects in the order of their kinds, each with its references: the pods refer to both and
    // one again, the Ingress to the Service.
    assert_eq!(names, [conf, key, "web-s", "web-s", conf, key, conf, "web-s", "web-s"], "{built}");
}

#[test]
fn layer_applies_its_transformers() {
    for (over, path, expected) in [
        (
            "labels: [{pairs: {l: x}, fields: [{kind: Deployment, path: spec/more, create: true}, {kind: Job, path: spec}]}]",
            "/spec/more",
            r#"{"l":"x"}"#,
        ),
        ("images: [{name: nginx, newTag: '2'}]", "/spec/template/spec/containers/0/image", "\"nginx:2\""),
        (
            "images: [{name: nginx, newName: ./web, newTag: '2'}]",
            "/spec/template/spec/containers/0/image",
            "\"./web:2\"",
        ),
        ("images: [{name: ngin, newTag: '2'}]", "/spec/template/spec/containers/0/image", "\"nginx:1\""),
        ("replicas: [{name: web, count: 3}]", "/spec/replicas", "3"),
        ("namespace: team", "/metadata/namespace", "\"team\""),
        ("labels: [{pairs: {l: x}}]", "/metadata/labels", r#"{"l":"x"}"#),
        ("labels: [{pairs: {l: x}}]", "/spec/selector/matchLabels", r#"{"app":"web"}"#),
        (
            "labels: [{pairs: {l: x}, includeTemplates: true}]",
            "/spec/template/metadata/labels",
            r#"{"app":"web","l":"x"}"#,
        ),
        ("labels: [{pairs: {l: x}, includeSelectors: true}]", "/spec/selector/matchLabels", r#"{"app":"web","l":"x"}"#),
        ("commonLabels: {l: x}", "/spec/selector/matchLabels", r#"{"app":"web","l":"x"}"#),
        ("commonAnnotations: {l: x}", "/spec/template/metadata/annotations", r#"{"l":"x"}"#),
        (
            "patches: [{target: {kind: Deploy.*}, patch: '[{op: add, path: /spec/paused, value: true}]'}]",
            "/spec/paused",
            "true",
        ),
        (
            "patches: [{target: {kind: Deploy}, patch: '[{op: add, path: /spec/paused, value: true}]'}]",
            "/spec/paused",
            "null",
        ),
        (
            "patches: [{patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 4}}'}]",
            "/spec/replicas",
            "4",
        ),
        (
            "patches: [{target: {name: web, kind: Deployment}, patch: '{kind: X, metadata: {name: other}, spec: {replicas: 4}}'}]",
            "/metadata/name",
            "\"web\"",
        ),
        (
            "patches: [{target: {kind: Deployment}, options: {allowNameChange: true}, patch: '{kind: X, metadata: {name: other}}'}]",
            "/metadata/name",
            "\"other\"",
        ),
        (
            "patchesStrategicMerge: ['{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 4}}']",
            "/spec/replicas",
            "4",
        ),
        (
            "patchesJson6902: [{target: {group: apps, version: v1, kind: Deployment, name: web}, patch: '[{op: add, path: /spec/paused, value: true}]'}]",
            "/spec/paused",
            "true",
        ),
        // As in kustomize, the fields of a patch precede others.
        (
            "patches: [{target: {kind: Deployment}, patch: '{kind: X, metadata: {name: other}, spec: {template: {spec: {containers: [{name: web, env: [{name: C, value: c}, {name: B, value: x}]}]}}}}'}]",
            "/spec/template/spec/containers/0/env",
            r#"[{"name":"C","value":"c"},{"name":"B","value":"x"},{"name":"A","value":"a"}]"#,
        ),
        (
            "patches: [{target: {kind: Deployment}, patch: '{kind: X, metadata: {name: other}, spec: {template: {spec: {containers: [{name: web, env: [{name: A, $patch: delete}]}]}}}}'}]",
            "/spec/template/spec/containers/0/env",
            r#"[{"name":"B","value":"b"}]"#,
        ),
        (
            "patches: [{target: {kind: Deployment}, patch: '{kind: X, metadata: {name: other}, spec: {template: {spec: {containers: [{$patch: merge, name: web, env: [{name: A, value: c}]}]}}}}'}]",
            "/spec/template/spec/containers/0/env/0",
            r#"{"name":"A","value":"c"}"#,
        ),
        (
            "replacements: [{source: {kind: Service, name: web}, targets: [{select: {kind: Deployment}, fieldPaths: ['spec.template.spec.containers.[name=web].env.[name=A].value']}]}]",
            "/spec/template/spec/containers/0/env/0/value",
            "\"web\"",
        ),
        (
            "replacements: [{source: {kind: Service, fieldPath: 'spec.ports.0.port'}, targets: [{select: {kind: Deployment}, options: {delimiter: ':', index: 1}, fieldPaths: ['spec.template.spec.containers.*.image']}]}]",
            "/spec/template/spec/containers/0/image",
            "\"nginx:80\"",
        ),
        (
            "replacements: [{sourceValue: '3', targets: [{select: {kind: Deployment}, options: {create: true}, fieldPaths: [spec.template.metadata.annotations.x]}]}]",
            "/spec/template/metadata/annotations",
            r#"{"x":"3"}"#,
        ),
    ] {
        let deployment = deployment(over);
        let found = deployment.pointer(path).map_or("null".to_owned(), ToString::to_string);
        assert_eq!(found, expected, "{over}");
    }
}

#[test]
fn generators_create_merge_or_replace() {
    let data = |over: &str| {
        let text = format!("{BASE}== over/kustomization.yaml\nresources: [../base]\n{over}");
        let built = build(&files(&text), "over", &mut Vec::new())?;
        let map = built.into_iter().find(|resource| resource.object.kind() == "ConfigMap").unwrap().object;
        assert!(map.name().starts_with("conf-") && map.name().len() == "conf-".len() + 10, "{}", map.name());
        Ok::<_, String>(map.0["data"].to_string())
    };
    for (over, expected) in [
        ("", r#"{"a":"1"}"#),
        ("configMapGenerator: [{name: conf, behavior: merge, literals: [b=2]}]", r#"{"a":"1","b":"2"}"#),
        ("configMapGenerator: [{name: conf, behavior: replace, literals: [b=2]}]", r#"{"b":"2"}"#),
    ] {
        assert_eq!(data(over).unwrap(), expected, "{over}");
    }
    for (generator, expected) in [
        ("{name: conf}", "exists; behavior must be merge or replace"),
        ("{name: other, behavior: merge}", "does not exist; cannot merge or replace"),
        ("{literals: [a=1]}", "needs a name"),
        ("{name: other, type: a}", "a ConfigMap has no type"),
        ("{name: other, literals: [a]}", "invalid literal source a, expected key=value"),
        ("{name: other, files: [none]}", "no such file or directory"),
        ("{name: other, literals: [a=1, a=2]}", "cannot add key \"a\""),
        ("{name: other, files: [../base/web.yaml]}", "security; file '/k/base/web.yaml' is not in or below '/k/over'"),
    ] {
        let failure = data(&format!("configMapGenerator: [{generator}]")).unwrap_err();
        assert!(failure.contains(expected), "{failure}");
        assert!(failure.ends_with("hint: over/kustomization.yaml:2: configMapGenerator[0]"), "{failure}");
    }
}

#[test]
fn errors_name_their_file_and_field() {
    for (over, expected, line) in [
        (
            "resources: [../base]\npatches: [{target: {kind: Deployment}, patch: '[{op: replace, path: \"\", value: 1}]'}]",
            "after the JSON patch, Deployment.v1.apps/web.[noNs] is not an object",
            2,
        ),
        (
            "resources: [none.yaml]",
            "accumulation err='accumulating resources from 'none.yaml': evalsymlink failure on",
            1,
        ),
        ("resources: [../base, ../base]", "already registered id: Service.v1.[noGrp]/web.[noNs]", 0),
        ("resources: [.]", "cycle detected: candidate root '/k/over' contains visited root '/k/over'", 1),
        ("resources: [https://a.b/c.yaml]", "kloop reads no manifests over the network", 1),
        (
            "resources: [../base]\npatches:\n- patch: '{kind: A, metadata: {name: b}}'",
            "no matches for Id A.[noVer].[noGrp]/b.[noNs]",
            3,
        ),
        (
            "resources: [../base]\npatches:\n- patch: |\n    {kind: Service, metadata: {name: web}}\n    ---\n    {metadata: {name: b}}",
            "missing kind in the patch {\"metadata\":{\"name\":\"b\"}}, and it has no target",
            3,
        ),
        ("resources: [../base]\npatches: [{patch: '[]'}]", "must specify a target for patch []", 2),
        ("resources: [../base]\npatches: [{path: p.yaml}]", "no such file or directory", 2),
        ("resources: [../base]\npatches: [{}]", "must specify one of patch and path", 2),
        ("resources: [../base]\nreplicas: [{name: x, count: 1}]", "resource with name x does not match", 2),
        ("resources: [../base]\nnamePrefx: a", "unknown field \"namePrefx\"", 2),
        ("resources: [../base]\ncommonLabels: {a: 1}", "cannot unmarshal number", 2),
        ("resources: [../base]\nhelmCharts: [{name: a}]", "kloop does not support 'helmCharts'", 2),
        ("resources: [../base]\ncrds: [a.json]", "kloop does not support 'crds'", 2),
        ("resources: [../base]\nsortOptions: {order: up}", "'sortOptions.order' must be one of [fifo, legacy]", 0),
        ("components: [../base]", "expected kind 'Component' for path '/k/base' but got 'Kustomization'", 1),
        ("kind: Kustomisation", "kind should be Kustomization or Component", 0),
        ("", "kustomization.yaml is empty", 0),
    ] {
        let failure = built(&format!("{BASE}== over/kustomization.yaml\n{over}\n")).unwrap_err();
        assert!(failure.contains(expected), "{over}: {failure}");
        if line > 0 {
            assert!(failure.contains(&format!("hint: over/kustomization.yaml:{line}: ")), "{over}: {failure}");
        }
    }
    let missing = built(BASE).unwrap_err();
    assert!(missing.starts_with("must build at directory: not a valid directory: evalsymlink failure on 'over' :"));
    let none = built("== over/a.yaml\n").unwrap_err();
    assert_eq!(
        none,
        "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '/k/over'"
    );
}

#[test]
fn patch_may_delete_or_replace_an_object() {
    let kinds = |patch: &str| {
        let text =
            format!("{BASE}== over/kustomization.yaml\nresources: [../base]\nvars: []\npatches:\n- patch: '{patch}'\n");
        let built = build(&files(&text), "over", &mut Vec::new()).unwrap();
        built
            .iter()
            .map(|resource| format!("{} {}", resource.object.kind(), resource.object.0["spec"]))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let ingress = "apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}";
    assert!(!kinds(&format!("{{$patch: delete, {ingress}}}")).contains("Ingress"));
    let replaced = kinds(&format!("{{$patch: replace, {ingress}, spec: {{ingressClassName: kloop}}}}"));
    assert!(replaced.ends_with(r#"Ingress {"ingressClassName":"kloop"}"#), "{replaced}");
}

#[test]
fn custom_resources_are_merged_field_by_field() {
    let text = "\
== over/kustomization.yaml
resources: [a.yaml]
patches:
- target: {kind: Thing}
  patch: '{kind: Thing, metadata: {name: any}, spec: {list: [{name: c}], b: 2, c: null}}'
== over/a.yaml
{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {list: [{name: a}, {name: b}], a: 1, c: 3}}
";
    let built = build(&files(text), "over", &mut Vec::new()).unwrap();
    assert_eq!(built[0].object.0["spec"].to_string(), r#"{"a":1,"b":2,"list":[{"name":"c"}]}"#);
}

#[test]
fn target_without_objects_gives_a_warning() {
    let over = "patches: [{target: {kind: Job}, patch: '[]'}, {target: {kind: Job}, patch: '[]', options: {allowNoTargetMatch: true}}]";
    let (_, warnings) = built_of(&format!("{BASE}== over/kustomization.yaml\nresources: [../base]\n{over}\n"), "over");
    assert_eq!(warnings, ["Warning: over/kustomization.yaml:2: the patch changes nothing: no object matches kind Job"]);
}

#[test]
fn deprecated_fields_give_warnings() {
    let text = format!("{BASE}== over/kustomization.yaml\nbases: [../base]\ncommonLabels: {{a: b}}\n");
    let (_, warnings) = built_of(&text, "over");
    let fields: Vec<_> = warnings.iter().filter_map(|warning| warning.split('\'').nth(1)).collect();
    assert_eq!(fields, ["bases", "commonLabels"]);
    assert_eq!(
        warnings[0],
        "# Warning: 'bases' is deprecated. Please use 'resources' instead. Run 'kustomize edit fix' to update your \
         Kustomization automatically."
    );
}

#[test]
fn component_transforms_existing_objects() {
    let text = format!(
        "{BASE}== over/kustomization.yaml\nresources: [../base]\ncomponents: [../part]\n\
         == part/kustomization.yaml\napiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nreplicas: [{{name: web, count: 7}}]\n"
    );
    assert!(built(&text).unwrap().contains("replicas: 7\n"));
}

#[test]
fn references_stay_within_their_layers() {
    let text = format!(
        "{BASE}== over/kustomization.yaml\nresources: [../a, ../b]\nnamePrefix: o-\n\
         == a/kustomization.yaml\nresources: [../base]\nnamePrefix: a-\n\
         == b/kustomization.yaml\nresources: [../base]\nnamePrefix: b-\n"
    );
    let built = built(&text).unwrap();
    for layer in ["a", "b"] {
        let ingress = built
            .split("---\n")
            .find(|one| one.contains("kind: Ingress") && one.contains(&format!("name: o-{layer}-web\n")));
        assert_eq!(ingress.unwrap().matches(&format!("name: o-{layer}-web\n")).count(), 2, "{built}");
    }
}

#[test]
fn binding_subjects_get_the_namespace() {
    let text = "\
== over/kustomization.yaml
resources: [a.yaml]
namespace: team
namePrefix: p-
== over/a.yaml
{apiVersion: v1, kind: ServiceAccount, metadata: {name: me}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: all}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}
subjects: [{kind: ServiceAccount, name: me}, {kind: ServiceAccount, name: default}, {kind: User, name: me}]
";
    let built = built(text).unwrap();
    let binding = built.split("---\n").find(|one| one.contains("kind: ClusterRoleBinding")).unwrap();
    let expected = "\
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: p-all
subjects:
- kind: ServiceAccount
  name: p-me
  namespace: team
- kind: ServiceAccount
  name: default
  namespace: team
- kind: User
  name: me
";
    assert!(binding.ends_with(expected), "{binding}");
}

#[test]
fn only_true_and_false_are_booleans() {
    let data = |of: &str, patch: &str| {
        let text = format!(
            "== over/kustomization.yaml\nresources: [a.yaml]\npatches: [{{target: {{kind: ConfigMap}}, path: p.yaml}}]\n\
             == over/a.yaml\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {of}}}\n\
             == over/p.yaml\n{{kind: ConfigMap, metadata: {{name: a}}, data: {patch}}}\n"
        );
        build(&files(&text), "over", &mut Vec::new()).unwrap()[0].object.0["data"].to_string()
    };
    for (of, patch, expected) in [
        ("{y: \"1\", n: \"2\"}", "{}", r#"{"n":"2","y":"1"}"#),
        ("{a: yes, b: No, c: on, d: OFF, e: Y}", "{}", r#"{"a":"yes","b":"No","c":"on","d":"OFF","e":"Y"}"#),
        ("{on: yes}", "{on: off}", r#"{"on":"off"}"#),
        ("{a: true, b: FALSE, c: ~}", "{}", r#"{"a":true,"b":false,"c":null}"#),
        ("{a: 0644, b: 0o644, c: 0x1f, d: 1_000, e: 089}", "{}", r#"{"a":420,"b":420,"c":31,"d":1000,"e":89}"#),
    ] {
        assert_eq!(data(of, patch), expected, "{of} {patch}");
    }
    // The kustomization itself is parsed like kubectl parses manifests.
    let hashless = "configMapGenerator: [{name: plain, literals: [a=yes], options: {disableNameSuffixHash: yes}}]";
    let built = built(&format!("== over/kustomization.yaml\n{hashless}\n")).unwrap();
    assert!(built.contains("name: plain\n") && built.contains("a: \"yes\"\n"), "{built}");
}

#[test]
fn empty_annotations_are_removed() {
    let metadata = |patch: &str| {
        let text = format!(
            "== over/kustomization.yaml\nresources: [a.yaml]\npatches: [{{target: {{kind: ConfigMap}}, patch: '{patch}'}}]\n\
             == over/a.yaml\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, annotations: {{x: y}}, labels: {{x: y}}}}}}\n"
        );
        build(&files(&text), "over", &mut Vec::new()).unwrap()[0].object.0["metadata"].to_string()
    };
    for (patch, expected) in [
        ("{metadata: {annotations: {x: null}, labels: {x: null}}}", r#"{"labels":{},"name":"a"}"#),
        ("[{op: remove, path: /metadata/annotations/x}]", r#"{"labels":{"x":"y"},"name":"a"}"#),
        ("{metadata: {annotations: {x: null, z: a}}}", r#"{"annotations":{"z":"a"},"labels":{"x":"y"},"name":"a"}"#),
    ] {
        assert_eq!(metadata(patch), expected, "{patch}");
    }
}

#[test]
fn origins_are_relative_to_the_built_folder() {
    let text = "\
== x/over/kustomization.yaml
resources: [../mid, own.yaml]
buildMetadata: [originAnnotations]
== x/over/own.yaml
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
== x/mid/kustomization.yaml
resources: [../base]
== x/base/kustomization.yaml
resources: [./sub/cm.yaml]
== x/base/sub/cm.yaml
{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
";
    let built = build(&files(text), "x/over", &mut Vec::new()).unwrap();
    let origin = |at: usize| built[at].object.annotation("config.kubernetes.io/origin").unwrap_or_default();
    assert_eq!([origin(0), origin(1)], ["path: own.yaml\n", "path: ../base/sub/cm.yaml\n"]);
}
