// Package config is the settings: one table of every key of a broker, a topic, a group and a client metrics subscription, with type, default, check and
// what it does here, under Kafka's names; and the configuration of a broker, resolved from its layers.
//
// A broker's value is the strongest of: the cluster metadata's for this broker, the cluster metadata's for all brokers, what it was started with, the default.
// What it was started with is the strongest of: --set, environment, file. A topic's value is its own, else that of the broker's key that
// stands for it, where a key in milliseconds that is null gives way to its relatives in minutes and hours.
//
// Messages about values are Kafka's words to the letter, as clients see them; messages about the start are ours, one line each with key, value and
// what is allowed.
//
// It owns nothing: no files stay open, nothing is watched. Tables, Broker and Topic are immutable and may be shared.
//
// Invariant: every default in the tables passes its own check.
package config
