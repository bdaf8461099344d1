//! The store compared with a model: a map, a list and a few numbers.

use super::*;
use kloop::object::Str;
use kloop::store::{ChangeKind, Retention, StoreError, StoreRead};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    /// Puts each object with its text, or removes it without one; then commits or drops the transaction.
    Write {
        changes: Vec<(u8, Option<u8>)>,
        commit: bool,
    },
    Compact {
        at_most: u64,
        budget: usize,
    },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0..6u8, prop_oneof![3 => any::<u8>().prop_map(Some), 1 => Just(None)]);
    let write = (prop::collection::vec(change, 1..5), prop::bool::weighted(0.8))
        .prop_map(|(changes, commit)| Step::Write { changes, commit });
    let compact = (0..12u64, 1..9usize).prop_map(|(at_most, budget)| Step::Compact { at_most, budget });
    prop::collection::vec(prop_oneof![6 => write, 2 => compact, 1 => Just(Step::Reopen)], 1..30)
}

/// The expected content of the store.
#[derive(Clone, Default)]
struct Model {
    live: BTreeMap<Key, (u64, Str)>,
    /// Revision, key, body, whether the object still exists, previous body.
    log: Vec<(u64, Key, Str, bool, Option<Str>)>,
    floor: u64,
}

impl Model {
    fn head(&self) -> u64 {
        self.log.last().map_or(0, |entry| entry.0)
    }

    fn change(&mut self, key: Key, text: Option<u8>) {
        let revision = self.head() + 1;
        let before = self.live.get(&key).map(|(_, body)| body.clone());
        let body: Str = body_of(text)(revision).into();
        match text {
            Some(_) => self.live.insert(key.clone(), (revision, body.clone())),
            None => self.live.remove(&key),
        };
        self.log.push((revision, key, body, text.is_some(), before));
    }
}

fn body_of(text: Option<u8>) -> impl FnOnce(u64) -> String {
    body(&format!("{text:?}"))
}

fn write(store: &mut Store, model: &mut Model, changes: &[(u8, Option<u8>)], commit: bool) {
    let mut txn = store.write(WAIT_TIMEOUT).unwrap();
    let mut after = model.clone();
    for (name, text) in changes {
        let key = pod(&format!("p{name}"));
        // An object's uid is derived from its creation, so that a recreated object has another.
        let uid = match txn.get(&key).unwrap() {
            Some(living) => living.uid,
            None if text.is_none() => continue,
            None => format!("{key}-{}", after.head() + 1).into(),
        };
        match text {
            Some(_) => txn.put(&key, &uid, body_of(*text), "model", at(after.head() as i64)),
            None => txn.remove(&key, body_of(*text), "model", at(after.head() as i64)),
        }
        .unwrap();
        after.change(key, *text);
    }
    compare(&txn, &after);
    if commit {
        assert_eq!(txn.commit().unwrap(), after.head());
        *model = after;
    }
}

fn compact(store: &mut Store, model: &mut Model, at_most: u64, budget: usize) {
    let keep = Retention { at_least: 0, at_most, since: at(0), bytes: u64::MAX };
    let due = model.head().saturating_sub(at_most).saturating_sub(model.floor);
    let passed = store.compact(&keep, budget).unwrap();
    assert_eq!(passed as u64, due.min(budget as u64));
    model.floor += passed as u64;
}

fn compare(found: &impl StoreRead, model: &Model) {
    assert_eq!((found.revision().unwrap(), found.floor().unwrap()), (model.head(), model.floor));
    let live: Vec<_> = found.list_all().unwrap().into_iter().map(|it| (it.key, (it.revision, it.body))).collect();
    assert_eq!(live, model.live.clone().into_iter().collect::<Vec<_>>());
    for revision in 0..model.head() + 2 {
        let answer = found.log_after(revision, usize::MAX);
        if revision < model.floor {
            assert_eq!(answer, Err(StoreError::Expired { floor: model.floor }));
        } else if revision > model.head() {
            assert_eq!(answer, Err(StoreError::Future { revision, head: model.head() }));
        } else {
            let entries = answer.unwrap().into_iter().map(|entry| {
                let stored = entry.change.stored();
                assert_eq!(entry.revision, stored.revision);
                assert!(stored.body.contains(&format!("\"{}\"", entry.revision)), "the body contains its revision");
                let lives = matches!(entry.change, ChangeKind::Put(_));
                (entry.revision, stored.key.clone(), stored.body.clone(), lives, entry.previous)
            });
            assert_eq!(entries.collect::<Vec<_>>(), model.log[revision as usize..]);
        }
    }
}

fn run(mut store: Store, steps: &[Step]) {
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Write { changes, commit } => write(&mut store, &mut model, changes, *commit),
            Step::Compact { at_most, budget } => compact(&mut store, &mut model, *at_most, *budget),
            Step::Reopen if store.path().exists() => {
                let path = store.path().to_owned();
                drop(store);
                store = Store::open(&path, OpenMode::Existing).unwrap();
            }
            Step::Reopen => {}
        }
        compare(&store.read().unwrap(), &model);
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
    }
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn memory_store_equals_its_model(steps in steps()) {
        run(Store::in_memory().unwrap(), &steps);
    }
}

proptest! {
    #![proptest_config(cases(8))]
    #[test]
    fn file_store_equals_its_model(steps in steps()) {
        let (_dir, store) = scratch();
        run(store, &steps);
    }
}
