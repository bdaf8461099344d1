//! Names that plans choose for objects that they create.

use super::{Row, World};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The letters of generated names, without vowels and similar-looking characters (apimachinery `rand`).
pub const NAME_LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Maximum length of a generated name before its five random letters.
const BASE: usize = 58;

/// Returns a free name that starts with `base`. The plan chooses the name, and not the server, because events contain
/// it. It derives from the revisions of owner and World, so that equal Worlds give equal plans, and a refused plan asks
/// for the same name again and gets the same message.
pub fn free_name(world: &World, resource: &'static str, owner: &Row, base: &str, slot: usize) -> String {
    let base = base.get(..BASE).unwrap_or(base);
    let mut turn = 0u64;
    loop {
        let mut hasher = DefaultHasher::new();
        (world.revision, owner.revision, &owner.uid, resource, base, slot, turn).hash(&mut hasher);
        let name = format!("{base}{}", letters(hasher.finish()));
        if world.find(resource, &owner.key.namespace, &name).is_none() {
            return name;
        }
        turn += 1;
    }
}

fn letters(mut number: u64) -> String {
    let mut letter = || {
        let at = (number % 27) as usize;
        number /= 27;
        char::from(NAME_LETTERS[at])
    };
    (0..5).map(|_| letter()).collect()
}
