package config

import "testing"

// What Apache Kafka takes and refuses; a pattern is one of Go's.
func TestParseClientMatch(t *testing.T) {
	for match, want := range map[string]string{
		"": "", "client_id=x": "", " client_id = x ": "", "client_id=a,client_software_name=b.*": "", "client_id=a,client_id=b": "", "client_id=a=": "",
		"client_id=a=b":     "Illegal client matching pattern: client_id=a=b",
		"client_id":         "Illegal client matching pattern: client_id",
		"client_id=":        "Illegal client matching pattern: client_id=",
		"=x":                "Illegal client matching pattern: =x",
		"nope=x":            "Illegal client matching pattern: nope=x",
		"client_id=[":       "Illegal client matching pattern: client_id=[",
		"client_id=a,":      "Configuration 'match' values must not be empty.",
		",":                 "Configuration 'match' values must not be empty.",
		"client_id=a)|(?:b": "Illegal client matching pattern: client_id=a)|(?:b",
	} {
		got := ""
		if _, err := ParseClientMatch(match); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q", match, got)
		}
		if err := CheckClientMetrics("match", match); (err == nil) != (want == "") {
			t.Errorf("%q: checked: %v", match, err)
		}
	}
}

// All patterns match, each the whole of its property.
func TestClientMatchSelects(t *testing.T) {
	client := map[string]string{ClientID: "app-7", ClientSoftwareName: "apache-kafka-java", ClientSourcePort: ""}
	for match, want := range map[string]bool{
		"": true, "client_id=app-.*": true, "client_id=app": false, "client_id=pp-7": false, "client_id=a|app-7": true, "client_id=app-7|b": true,
		"client_id=app-.,client_software_name=.*java": true, "client_id=app-.,client_software_name=librdkafka": false,
		"client_instance_id=.*": false, "client_source_port=.*": true, "client_id=b,client_id=app-7": true,
	} {
		m, err := ParseClientMatch(match)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Selects(client); got != want {
			t.Errorf("%q: %v", match, got)
		}
	}
}
