//! Body of a row: the stored text, or the decoded object.
//!
//! Pods of one controller differ in a few names, addresses and times. At rest, the text of such a pod is kept as its difference to the text
//! of a sibling, in the block format of LZ4 with that text as its dictionary.
//!
//! Never: decides which rows are siblings. Start reading at [`RowBody`].

use crate::object::edit::TextEdit;
use crate::object::{Object, Str, edit};
use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// A text is only packed to less than its length divided by this: otherwise the memory is not worth the time to unpack it.
const LEAST_GAIN: usize = 2;

/// Compact text at rest; decoded only for rows that this tick has staged as objects, and for a few kinds.
pub(super) enum RowBody {
    /// The text.
    Text(Str),
    /// The text, packed.
    Packed(PackedText),
    /// The object.
    Parsed(Arc<Object>),
}

/// A text that is kept as its difference to another text.
pub(super) struct PackedText {
    base: Str,
    difference: Box<[u8]>,
}

impl PackedText {
    /// Packs a text; `None` when the two texts have too little in common.
    fn pack(text: &str, base: &Str) -> Option<PackedText> {
        let difference = compress_prepend_size_with_dict(text.as_bytes(), base.as_bytes());
        let packed = PackedText { base: base.clone(), difference: difference.into() };
        // The World has no other copy of the text. It gives the text up only when unpacking gives the same one.
        (packed.difference.len() < text.len() / LEAST_GAIN && packed.text() == text).then_some(packed)
    }

    fn text(&self) -> String {
        let text = decompress_size_prepended_with_dict(&self.difference, self.base.as_bytes());
        String::from_utf8(text.unwrap_or_default()).unwrap_or_default()
    }
}

impl RowBody {
    /// The body of a row at rest, as a difference to this text if that is much smaller.
    pub(super) fn at_rest(text: Str, base: Option<&Str>) -> RowBody {
        match base.and_then(|base| PackedText::pack(&text, base)) {
            Some(packed) => RowBody::Packed(packed),
            None => RowBody::Text(text),
        }
    }

    /// Returns the text to which those of siblings can be differences.
    pub(super) fn base(&self) -> Option<&Str> {
        match self {
            RowBody::Text(text) => Some(text),
            RowBody::Packed(packed) => Some(&packed.base),
            RowBody::Parsed(_) => None,
        }
    }

    /// Its text, if it is not decoded.
    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            RowBody::Text(text) => Some(Cow::Borrowed(text)),
            RowBody::Packed(packed) => Some(Cow::Owned(packed.text())),
            RowBody::Parsed(_) => None,
        }
    }

    /// Its text with other values in some places; `None` when it has to be decoded for that.
    pub(super) fn edited(&self, edits: &[TextEdit]) -> Option<Str> {
        edit::text(&self.text()?, edits).map(Str::from)
    }

    /// Returns the text with this revision, as the store keeps it. `is_current`: the body has that revision already.
    pub(super) fn text_at(&self, revision: u64, is_current: bool) -> Str {
        match self {
            RowBody::Text(text) if is_current => text.clone(),
            RowBody::Packed(packed) if is_current => packed.text().into(),
            RowBody::Parsed(object) => object.text_at(revision).into(),
            RowBody::Text(_) | RowBody::Packed(_) => {
                let edited = self.edited(&[edit_of(revision)]);
                edited.unwrap_or_else(|| self.object().text_at(revision).into())
            }
        }
    }

    /// The whole object, to be read. Costs a parse at rest.
    pub(super) fn object(&self) -> Cow<'_, Object> {
        let decoded = |text: &str| Cow::Owned(Object(serde_json::from_str(text).unwrap_or(Value::Null)));
        match self {
            RowBody::Parsed(object) => Cow::Borrowed(object),
            RowBody::Text(text) => decoded(text),
            RowBody::Packed(packed) => decoded(&packed.text()),
        }
    }
}

/// The change that gives a text its revision.
pub(super) fn edit_of(revision: u64) -> TextEdit {
    TextEdit::set(&["metadata", "resourceVersion"], revision.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::World;
    use super::*;
    use crate::object::{Key, Resource, Time};
    use serde_json::json;

    fn pod(name: &str, phase: &str, note: &str) -> Object {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
        Object(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
                "annotations": {"note": note}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", "exec sleep 1000"]}]},
            "status": {"phase": phase, "message": "as all pods of this ReplicaSet say about themselves"},
        }))
    }

    fn key(name: &str) -> Key {
        Key::new(Resource("pods"), "default", name)
    }

    /// Commits a pod as a tick does.
    fn commit(world: &mut World, name: &str, pod: &Object, revision: u64) {
        world.stage(key(name), Some(pod.clone()));
        world.keep_staged([(key(name), pod.text_at(revision).into(), revision)]);
    }

    fn packed<'a>(world: &'a World, name: &str) -> Option<&'a PackedText> {
        match &world.get(&key(name)).unwrap().body {
            RowBody::Packed(packed) => Some(packed),
            RowBody::Text(_) | RowBody::Parsed(_) => None,
        }
    }

    #[test]
    fn started_pods_of_one_owner_are_differences_to_a_sibling() {
        let mut world = World::new(Time::UNIX_EPOCH);
        world.pack_texts();
        let names = ["a", "b", "c", "d"];
        for (revision, name) in (10..).zip(names) {
            commit(&mut world, name, &pod(name, "Pending", ""), revision);
            assert!(packed(&world, name).is_none(), "a pod that has not started changes soon");
        }
        for (revision, name) in (20..).zip(names) {
            commit(&mut world, name, &pod(name, "Running", ""), revision);
        }
        world.put(key("e"), pod("e", "Running", "").text_at(30).into());
        assert!(packed(&world, "a").is_none(), "there was no sibling yet");
        for name in ["b", "c", "d", "e"] {
            let difference = &packed(&world, name).expect("a difference").difference;
            assert!(difference.len() < 100, "{name}: {} bytes", difference.len());
        }
        world.remove(&key("a"));
        let (b, wanted) = (world.get(&key("b")).unwrap(), pod("b", "Running", ""));
        assert_eq!(*b.text_at(21), wanted.text_at(21));
        assert_eq!(*b.text_at(99), wanted.text_at(99));
        assert_eq!(b.object().0, serde_json::from_str::<Value>(&wanted.text_at(21)).unwrap());
        assert_eq!(b.body().uid(), "b");
        assert!(b.mentions("ReplicaSet say about") && !b.mentions("another"));
    }

    #[test]
    fn siblings_are_other_objects_of_the_same_kind() {
        let mut world = World::new(Time::UNIX_EPOCH);
        world.pack_texts();
        let map = |name: &str| {
            let mut map = pod(name, "Running", "");
            map.set(&["kind"], "ConfigMap");
            map
        };
        for name in ["1", "2", "3", "4", "5"] {
            world.put(Key::new(Resource("configmaps"), "default", name), map(name).text_at(1).into());
        }
        world.put(key("a"), pod("a", "Running", "").text_at(2).into());
        world.put(key("a"), pod("a", "Running", "again").text_at(3).into());
        assert!(packed(&world, "a").is_none(), "no difference to its own earlier text");
        world.put(key("b"), pod("b", "Running", "").text_at(4).into());
        assert!(packed(&world, "b").is_some(), "five other dependents come before the pods");
    }

    #[test]
    fn only_a_world_that_lives_long_packs() {
        let mut world = World::new(Time::UNIX_EPOCH);
        for name in ["a", "b"] {
            commit(&mut world, name, &pod(name, "Running", ""), 1);
            assert!(packed(&world, name).is_none());
        }
    }

    #[test]
    fn pod_that_differs_much_keeps_its_text() {
        let mut world = World::new(Time::UNIX_EPOCH);
        world.pack_texts();
        let note: String = (0..2000).map(|number| format!("{number:x}")).collect();
        commit(&mut world, "a", &pod("a", "Running", ""), 1);
        commit(&mut world, "b", &pod("b", "Running", &note), 2);
        commit(&mut world, "c", &pod("c", "Running", ""), 3);
        assert!(packed(&world, "b").is_none());
        assert!(packed(&world, "c").is_some());
        assert_eq!(*world.get(&key("b")).unwrap().text_at(2), pod("b", "Running", &note).text_at(2));
    }
}
