package txncoordinator

import (
	"slices"
	"strings"
)

// Topic is some partitions of a topic, ascending and without duplicates.
type Topic struct {
	Name       string
	Partitions []int32
}

// Partitions is a set of partitions: topics ascending by name, none without partitions. It is immutable.
type Partitions []Topic

// PartitionsOf makes the set of what visit yields, in any order.
func PartitionsOf(visit func(yield func(topic string, partition int32))) Partitions {
	var p Partitions
	visit(func(topic string, partition int32) { p = p.with(topic, partition) })
	return p
}

func byName(t Topic, name string) int { return strings.Compare(t.Name, name) }

// with adds to a set that nobody else has seen yet.
func (p Partitions) with(topic string, partition int32) Partitions {
	i, found := slices.BinarySearchFunc(p, topic, byName)
	if !found {
		return slices.Insert(p, i, Topic{topic, []int32{partition}})
	}
	t := &p[i]
	if j, found := slices.BinarySearch(t.Partitions, partition); !found {
		t.Partitions = slices.Insert(t.Partitions, j, partition)
	}
	return p
}

// Has tells whether a partition is in the set.
func (p Partitions) Has(topic string, partition int32) bool {
	i, found := slices.BinarySearchFunc(p, topic, byName)
	if !found {
		return false
	}
	_, found = slices.BinarySearch(p[i].Partitions, partition)
	return found
}

// Len is the number of partitions.
func (p Partitions) Len() int {
	n := 0
	for i := range p {
		n += len(p[i].Partitions)
	}
	return n
}

// contains tells whether all of other is in the set.
func (p Partitions) contains(other Partitions) bool {
	for _, t := range other {
		for _, partition := range t.Partitions {
			if !p.Has(t.Name, partition) {
				return false
			}
		}
	}
	return true
}

// union gives the set of what is in either.
func (p Partitions) union(other Partitions) Partitions {
	if len(p) == 0 {
		return other
	}
	u := p.clone()
	for _, t := range other {
		for _, partition := range t.Partitions {
			u = u.with(t.Name, partition)
		}
	}
	return u
}

// minus gives the set without what is in other.
func (p Partitions) minus(other Partitions) Partitions {
	var rest Partitions
	for _, t := range p {
		left := slices.DeleteFunc(slices.Clone(t.Partitions), func(partition int32) bool { return other.Has(t.Name, partition) })
		if len(left) > 0 {
			rest = append(rest, Topic{t.Name, left})
		}
	}
	return rest
}

func (p Partitions) clone() Partitions {
	c := slices.Clone(p)
	for i := range c {
		c[i].Partitions = slices.Clone(c[i].Partitions)
	}
	return c
}
