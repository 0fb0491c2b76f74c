// Package cluster is the cluster's metadata: a state machine on raft, the immutable Image that it yields, and the controller that decides
// what is written.
package cluster
