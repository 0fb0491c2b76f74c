// Package coordinatortest has an in-memory log for tests of coordinators' machines: its high watermark can be held back,
// its appends can fail, and its leadership can end.
package coordinatortest
