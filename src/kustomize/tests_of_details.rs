//! Regression tests from kustomizations of real projects.

use super::tests::built;

fn check(over: &str, expected: &str) {
    assert_eq!(built(&format!("== over/kustomization.yaml\n{over}")).unwrap(), expected, "{over}");
}

#[test]
fn generated_secret_without_entries_has_empty_data() {
    check(
        "generatorOptions: {disableNameSuffixHash: true}\nsecretGenerator: [{name: a}]\nconfigMapGenerator: [{name: b}]\n",
        "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: b
---
apiVersion: v1
data: {}
kind: Secret
metadata:
  name: a
type: Opaque
",
    );
}

#[test]
fn generator_with_an_unknown_behavior_creates() {
    let over =
        "configMapGenerator: [{name: b, behavior: add, literals: [a=1], options: {disableNameSuffixHash: true}}]\n";
    check(over, "apiVersion: v1\ndata:\n  a: \"1\"\nkind: ConfigMap\nmetadata:\n  name: b\n");
}

#[test]
fn annotations_without_entries_are_left_out() {
    for annotations in ["{}", "null", ""] {
        let object =
            format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations: {annotations}\n  labels: {{}}\n");
        check(
            &format!("resources: [a.yaml]\n== over/a.yaml\n{object}"),
            "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n  name: a\n",
        );
    }
}

#[test]
fn newer_cluster_scoped_kinds_are_put_into_the_namespace() {
    for (api_version, kind, is_put) in [
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", true),
        ("flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema", false),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", false),
        ("example.com/v1", "ClusterRole", true),
    ] {
        let object = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: a\n");
        let expected = if is_put { format!("{object}  namespace: ns\n") } else { object.clone() };
        check(&format!("namespace: ns\nresources: [a.yaml]\n== over/a.yaml\n{object}"), &expected);
    }
}

#[test]
fn json_patch_selects_as_patches_do() {
    let over = "resources: [a.yaml]\npatchesJson6902:\n- target: {name: '.*', namespace: none}\n  patch: '[{op: remove, path: /x}]'\n\
        - target: {name: 'a|b'}\n  patch: '[{op: replace, path: /spec/new, value: 1}]'\n\
        == over/a.yaml\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n";
    check(over, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  new: 1\n");
}

#[test]
fn block_scalar_at_the_end_of_a_file_ends_as_the_file_does() {
    for (end, expected) in [("x", "x\n"), ("x\n", "|\n    x\n"), ("x\n    # y", "|-\n    x\n    # y\n")] {
        let object = format!("apiVersion: v1\ndata:\n  k: |\n    {end}");
        let text = built(&format!(
            "== over/kustomization.yaml\nresources: [a.yaml]\n== over/a.yaml\nkind: ConfigMap\nmetadata: {{name: a}}\n{object}"
        ));
        assert_eq!(
            text.unwrap(),
            format!("apiVersion: v1\ndata:\n  k: {expected}kind: ConfigMap\nmetadata:\n  name: a\n")
        );
    }
}

#[test]
fn strategic_merge_drops_fields_that_have_no_value() {
    check(
        "resources: [a.yaml]\npatches: [{patch: 'kind: Pod\n\n    apiVersion: v1\n\n    metadata: {name: a, labels: {a: b}}'}]\n\
        == over/a.yaml\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  creationTimestamp: null\nspec:\n  nodeName:\n\
        \x20 containers:\n  - name: c\n    image: # none\n",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  creationTimestamp: null\n  labels:\n    a: b\n  name: a\nspec:\n  containers:\n  - name: c\n",
    );
}

#[test]
fn annotations_are_text() {
    check(
        "resources: [a.yaml]\n== over/a.yaml\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    a: true\n    b: 1\n    c: null\n    d:\n",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    a: \"true\"\n    b: \"1\"\n    c: \"null\"\n    d: \"\"\n  name: a\n",
    );
}

#[test]
fn origins_of_generated_objects_are_the_generators() {
    let origin = |file: &str| {
        format!(
            "metadata:\n  annotations:\n    config.kubernetes.io/origin: |\n      configuredIn: {file}kustomization.yaml\n      \
             configuredBy:\n        apiVersion: builtin\n        kind: ConfigMapGenerator\n  name: a\n"
        )
    };
    let base = "== base/kustomization.yaml\nconfigMapGenerator: [{name: a, literals: [a=b], options: {disableNameSuffixHash: true}}]\n";
    for (behavior, file) in [("merge", "../base/"), ("replace", "")] {
        let over = format!(
            "buildMetadata: [originAnnotations]\nresources: [../base]\nconfigMapGenerator: [{{name: a, behavior: {behavior}, literals: [a=c]}}]\n{base}"
        );
        check(&over, &format!("apiVersion: v1\ndata:\n  a: c\nkind: ConfigMap\n{}", origin(file)));
    }
}

#[test]
fn patch_file_without_documents_changes_nothing() {
    let object = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n";
    let over = "resources: [a.yaml]\npatches: [{path: p.yaml}, {path: p.yaml, target: {kind: Pod}}]\n== over/p.yaml\n# nothing\n";
    check(&format!("{over}== over/a.yaml\n{object}"), object);
}

#[test]
fn generator_file_names_its_object_apart_from_itself() {
    let generator = "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: config}\nname: a\nliterals: [a=b]\n\
        options: {disableNameSuffixHash: true}\n";
    let origin = "    config.kubernetes.io/origin: |\n      configuredIn: g.yaml\n      configuredBy:\n        apiVersion: builtin\n        \
        kind: ConfigMapGenerator\n        name: config\n";
    check(
        &format!("buildMetadata: [originAnnotations]\ngenerators: [g.yaml]\n== over/g.yaml\n{generator}"),
        &format!("apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  annotations:\n{origin}  name: a\n"),
    );
}
