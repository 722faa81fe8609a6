use std::collections::BTreeMap;

use proptest::prelude::*;
use resources::{
    Kind,
    naming::{
        Kri, SectionName, SelfName, SystemName, classify, classify_stat, dns, kds, legacy, sni, system,
    },
};

/// Strings close enough to names to get past the first checks, and strings far from them.
fn any_text() -> impl Strategy<Value = String> {
    let almost = "(kri_|self_|system_|sni\\.|a[0-9a-f]{16}\\.|(in|out)bound[_:]|localhost[_:]|backend\\{)?[a-z0-9_.:{}=,\\[\\]é-]{0,80}";
    prop_oneof![any::<String>(), almost, ".{60,70}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_string_can_be_read(text in any_text()) {
        let _ = text.parse::<Kri>();
        let _ = text.parse::<SectionName>();
        let _ = text.parse::<SelfName>();
        let _ = text.parse::<SystemName>();
        let _ = sni::decode(&text);
        let _ = sni::to_kri(&text);
        let _ = sni::to_tags(&text);
        let _ = (classify(&text), classify_stat(&text));
        let _ = legacy::service_of_cluster(&text);
        let _ = (dns::rfc1123_label_errors(&text), dns::rfc1035_label_errors(&text));
        let _ = (dns::rfc1123_subdomain_errors(&text), dns::is_dns_name(&text));
        let _ = (dns::qualified_name_errors(&text), dns::label_value_errors(&text));
    }

    #[test]
    fn a_name_of_any_characters_can_be_hashed(text in ".{0,300}", port in any::<u32>()) {
        let hashed = sni::hashed(&text, &text, Kind::MeshService, port, &BTreeMap::new());
        prop_assert!(hashed.is_ok());
        prop_assert!(kds::hashed_name(&text, &text, Some(&text), None).len() <= 253);
        let _ = (system::clean(&text), legacy::sanitize_stat(&text), legacy::inbound_listener(&text, port));
    }

    #[test]
    fn what_reads_as_a_kri_is_written_the_same(text in any_text()) {
        if let Ok(kri) = text.parse::<Kri>() {
            prop_assert_eq!(kri.to_string(), text);
        }
    }

    #[test]
    fn what_reads_as_the_sni_of_a_kri_is_written_the_same(text in "sni\\.(msvc|extsvc|mzsvc)(\\.[a-z0-9-]{1,4}){2,6}") {
        if let Ok(kri) = sni::to_kri(&text) {
            prop_assert_eq!(sni::from_kri(&kri), Ok(text));
        }
    }
}
