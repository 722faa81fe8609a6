//! The settings of SNIs.

use resources::naming::sni::{Form, Formats};
use serde_json::Value;

use super::{section::section, setting::Setting};

section! {
    /// How connections between zones name their destinations.
    pub struct Sni {
        /// The formats of the SNIs that this control plane writes into its MeshServices, MeshExternalServices and
        /// MeshMultiZoneServices: clients dial the first, servers accept all. To switch, list both with the new
        /// one first, and leave out the old one when nothing dials it any more. A port whose KRI cannot be a host
        /// name keeps `hashed`.
        formats: Formats = Formats::default(), "formats", "KUMA_MULTIZONE_SNI_FORMATS";
    }
}

impl Setting for Formats {
    fn set(&mut self, value: &Value) -> Result<(), String> {
        let mut names: Vec<String> = Vec::new();
        names.set(value)?;
        read(self, &names)
    }

    fn to_json(&self) -> Value {
        self.names().collect()
    }

    fn accepts(&self) -> String {
        let names = Form::ALL.map(Form::name).join(" and ");
        format!("a list of one or both of {names}; in the environment separated by commas")
    }

    fn set_text(&mut self, text: &str) -> Result<(), String> {
        let mut names: Vec<String> = Vec::new();
        names.set_text(text)?;
        read(self, &names)
    }
}

fn read(formats: &mut Formats, names: &[String]) -> Result<(), String> {
    let read = Formats::named(names.iter().map(String::as_str));
    *formats = read.map_err(|reason| format!("{reason}: expected {}", formats.accepts()))?;
    Ok(())
}
