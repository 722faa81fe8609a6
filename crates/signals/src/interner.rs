//! Values that many edges share, each kept once.

use std::{collections::HashMap, hash::Hash, sync::Arc};

/// Numbers for values. A value is forgotten when its last user is.
#[derive(Debug)]
pub struct Interner<T> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Option<Interned<T>>>,
    /// Numbers that are free again.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Interned<T> {
    value: Arc<T>,
    users: u32,
}

impl<T> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner { numbers: HashMap::new(), values: Vec::new(), free: Vec::new() }
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// The number of a value, if it has one.
    pub fn find(&self, value: &T) -> Option<u32> {
        self.numbers.get(value).copied()
    }

    /// The number of a value, with one more user.
    pub fn acquire(&mut self, value: &T) -> u32
    where
        T: Clone,
    {
        if let Some(number) = self.find(value) {
            if let Some(known) = self.slot(number) {
                known.users += 1;
            }
            return number;
        }
        let value = Arc::new(value.clone());
        let interned = Interned { value: value.clone(), users: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.values.get_mut(index(number)) {
                    *place = Some(interned);
                }
                number
            }
            None => {
                self.values.push(Some(interned));
                u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.numbers.insert(value, number);
        number
    }

    /// Takes a user away.
    pub fn release(&mut self, number: u32) {
        let Some(known) = self.slot(number) else { return };
        known.users -= 1;
        if known.users == 0
            && let Some(gone) = self.values.get_mut(index(number)).and_then(Option::take)
        {
            self.numbers.remove(&gone.value);
            self.free.push(number);
        }
    }

    pub fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.values.get(index(number))?.as_ref().map(|known| &known.value)
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    fn slot(&mut self, number: u32) -> Option<&mut Interned<T>> {
        self.values.get_mut(index(number))?.as_mut()
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_while_it_has_users_and_its_number_is_used_again() {
        let mut names = Interner::<String>::default();
        let web = names.acquire(&"web".to_owned());
        assert_eq!(names.acquire(&"web".to_owned()), web);
        let kv = names.acquire(&"kv".to_owned());
        names.release(web);
        assert_eq!(names.get(web).map(|name| name.as_str()), Some("web"));
        names.release(web);
        assert_eq!((names.get(web), names.find(&"web".to_owned()), names.len()), (None, None, 1));
        assert_eq!(names.acquire(&"db".to_owned()), web);
        assert_eq!(names.get(kv).map(|name| name.as_str()), Some("kv"));
    }
}
