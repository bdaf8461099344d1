//! Secrets of a cluster that its state keeps: made at their first use, by one machine.
//!
//! Start reading at [`load_or_make`].

use crate::apiserver::{ApiResult, refused};
use crate::store::{OVERTAKEN, Store, StoreError, StoreRead};
use std::time::Duration;

/// Time that the first use waits for the write lock.
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the meta entries of these names. Makes and stores their values, unless all of them are there.
pub fn load_or_make<const N: usize>(
    store: &mut Store,
    names: [&str; N],
    make: impl Fn() -> ApiResult<[String; N]>,
) -> ApiResult<[String; N]> {
    let wrong = |error: StoreError| refused(&error);
    loop {
        if let Some(stored) = read(&store.read().map_err(wrong)?, names).map_err(wrong)? {
            return Ok(stored);
        }
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).map_err(wrong)?;
        if let Some(stored) = read(&txn, names).map_err(wrong)? {
            return Ok(stored);
        }
        let made = make()?;
        for (name, value) in names.iter().zip(&made) {
            txn.set_meta(name, value).map_err(wrong)?;
        }
        match txn.commit() {
            // The machine that wrote first may have made them.
            Err(OVERTAKEN) => {}
            committed => return committed.map(|_| made).map_err(|error| refused(&error.into())),
        }
    }
}

fn read<const N: usize>(snapshot: &dyn StoreRead, names: [&str; N]) -> Result<Option<[String; N]>, StoreError> {
    let mut values = Vec::with_capacity(N);
    for name in names {
        values.extend(snapshot.meta(name)?);
    }
    Ok(values.try_into().ok())
}
