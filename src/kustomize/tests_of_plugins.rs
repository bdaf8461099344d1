//! Kustomizations with `configurations`, `vars`, `generators` and `transformers`.

use super::tests::built;

/// An operator as scaffolded projects define it: only a configuration declares the fields that name
/// its webhook.
const OPERATOR: &str = "\
== base/kustomization.yaml
resources: [all.yaml]
configurations: [rules.yaml]
== base/all.yaml
apiVersion: v1
kind: Service
metadata: {name: hooks}
spec: {ports: [{port: 443}]}
---
apiVersion: shop.example/v1
kind: Stall
metadata: {name: fruit, annotations: {note: at $(HOOKS)}}
spec: {backend: {service: hooks, where: here}, picture: apple:1, count: 1}
== base/rules.yaml
namereference:
- kind: Service
  version: v1
  fieldSpecs:
  - {kind: Stall, group: shop.example, path: spec/backend/service}
namespace:
- {kind: Stall, group: shop.example, path: spec/backend/where, create: true}
images:
- {kind: Stall, path: spec/picture}
replicas:
- {kind: Stall, path: spec/count}
commonLabels:
- {kind: Stall, path: spec/selector, create: true}
";

#[test]
fn configurations_add_fields_to_every_transformer() {
    let over = "== over/kustomization.yaml\nresources: [../base]\nNamePrefix: my-\nnamespace: market\n\
                images: [{name: apple, newTag: '2'}]\nreplicas: [{name: fruit, count: 3}]\ncommonLabels: {a: b}\n";
    let text = built(&format!("{OPERATOR}{over}")).unwrap();
    for line in [
        "    service: my-hooks",
        "    where: market",
        "  picture: apple:2",
        "  count: 3",
        "  selector:\n    a: b",
        "  name: my-fruit",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line} in\n{text}");
    }
}

#[test]
fn variables_use_final_names() {
    let over = "== over/kustomization.yaml\nresources: [../base]\nnameSuffix: '-1'\nvars:\n- name: HOOKS\n  objref: {apiVersion: v1, kind: \
                Service, name: hooks}\n";
    let text = built(&format!("{OPERATOR}{over}")).unwrap();
    assert!(text.contains("    note: at hooks-1\n"), "{text}");
    let missing = over.replace("name: hooks}", "name: nowhere}");
    let refused = built(&format!("{OPERATOR}{missing}")).unwrap_err();
    assert!(refused.contains("var 'HOOKS' cannot be mapped to a field"), "{refused}");
}

/// Returns the result of a transformer for two objects.
fn transformed(config: &str) -> Result<String, String> {
    built(&format!(
        "== over/kustomization.yaml\nresources: [all.yaml]\ntransformers: [change.yaml]\n== over/change.yaml\napiVersion: builtin\n\
         {config}\n== over/all.yaml\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: old}}\nspec: {{template: \
         {{spec: {{containers: [{{name: app, image: shop:1}}]}}}}}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: conf}}\n"
    ))
}

#[test]
fn builtin_transformers_follow_their_configuration() {
    let fields = "fieldSpecs: [{kind: Deployment, path: metadata/name}]";
    let cases = [
        (format!("kind: PrefixTransformer\nmetadata: {{name: t}}\nprefix: my-\n{fields}"), "name: my-web\n", "name: my-conf\n"),
        (format!("kind: SuffixTransformer\nmetadata: {{name: t}}\nsuffix: -x\n{fields}"), "name: web-x\n", "name: conf-x\n"),
        (
            "kind: LabelTransformer\nmetadata: {name: t}\nlabels: {a: b}\nfieldSpecs: [{path: metadata/labels, create: true}]".into(),
            "labels:\n    a: b\n",
            "selector",
        ),
        (
            "kind: NamespaceTransformer\nmetadata: {name: t, namespace: new}\nunsetOnly: true".into(),
            "namespace: new\n",
            "name: web\n  namespace: new\n",
        ),
        ("kind: ImageTagTransformer\nmetadata: {name: t}\nimageTag: {name: shop, newTag: '2'}".into(), "image: shop:2\n", "shop:1"),
        (
            "kind: PatchTransformer\nmetadata: {name: t}\ntarget: {kind: ConfigMap}\npatch: '[{op: add, path: /data, value: {k: v}}]'".into(),
            "data:\n  k: v\n",
            "data: {}",
        ),
        (
            "kind: ReplicaCountTransformer\nmetadata: {name: t}\nreplica: {name: web, count: 4}\nfieldSpecs: [{kind: Deployment, path: \
             spec/replicas, create: true}]"
                .into(),
            "replicas: 4\n",
            "replicas: 1",
        ),
    ];
    for (config, is_there, is_not) in cases {
        let text = transformed(&config).unwrap_or_else(|why| panic!("{config}: {why}"));
        assert!(text.contains(is_there) && !text.contains(is_not), "{config}\n{text}");
    }
}

#[test]
fn other_plugins_are_refused_by_name() {
    let refused = transformed("kind: IAMPolicyGenerator\nmetadata: {name: t}").unwrap_err();
    assert!(refused.contains("kloop does not support the plugin IAMPolicyGenerator of builtin"), "{refused}");
    assert!(refused.contains("change.yaml:1"), "{refused}");
}

#[test]
fn generators_may_be_written_into_the_kustomization() {
    let text = built(
        "== over/kustomization.yaml\ngenerators:\n- |-\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: conf}\n  \
         literals: [a=1]\n",
    )
    .unwrap();
    assert!(text.contains("  a: \"1\"\n") && text.contains("name: conf-"), "{text}");
}
