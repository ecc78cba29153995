/* Federated Q-learning (Algorithm 4), written by hand: the baseline of the cpu engine.
 *
 * Between two syncs the agents do not interact, so one Q table serves them all. Each agent in turn takes its K steps on
 * it, logging every cell it overwrites; its differences go to an accumulator and the log then undoes them. A sync adds
 * the accumulated differences, divided by N, to the table: to all of it, or to the touched cells alone where a round is
 * short against the table.
 *
 * Draws go through alias rows with integer thresholds: a word w and b outcomes give j = (w * b) >> 32, kept if the low 32
 * bits of w * b are below threshold[j], replaced by its alias if not.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t num_states, num_actions, num_agents;
    const uint32_t *agent_policy, *agent_mdp;           /* [num_agents] */
    const uint32_t *policy_threshold, *policy_alias;    /* [(policy * S + s) * A + j] */
    const uint64_t *row_start;                          /* [(mdp * S + s) * A + a], and the end of the last row */
    const uint32_t *threshold, *stay, *go;              /* [row_start + j]: successor j and its alias */
    const double *rewards;                              /* [(mdp * S + s) * A + a] */
    double discount, step_size;
} Problem;

typedef struct {
    uint64_t random[4];
    uint64_t state;
} Agent;

typedef struct {
    uint64_t cell;
    double old;
} Entry;

typedef struct {
    double *difference;     /* [d], zero outside a round */
    uint32_t *stamp;        /* [d], the last round that touched a cell */
    uint32_t *touched;      /* the cells touched in this round */
    uint64_t num_touched;
} Accumulator;

static inline uint64_t rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

/* xoshiro256++ of Blackman and Vigna: 64 bits, so the two words of a step, per call. */
static inline uint64_t next_random(uint64_t r[4]) {
    const uint64_t result = rotate(r[0] + r[3], 23) + r[0], t = r[1] << 17;
    r[2] ^= r[0];
    r[3] ^= r[1];
    r[1] ^= r[2];
    r[0] ^= r[3];
    r[2] ^= t;
    r[3] = rotate(r[3], 45);
    return result;
}

static uint64_t splitmix(uint64_t *x) {
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* `first ? x : y` as a conditional move. Both values are computed before the test, so the compiler emits no branch;
 * on random draws the processor would mispredict it. */
static inline uint64_t choose(int first, uint64_t x, uint64_t y) {
    __asm__("" : "+r"(x), "+r"(y));
    return first ? x : y;
}

/* One agent's steps between two syncs. They start from the average in q, and q is restored afterwards. */
static inline void local_round(const Problem *p, uint64_t i, Agent *agent, uint64_t num_steps, double *restrict q,
                               Entry *restrict log, Accumulator *acc, uint32_t round, int sparse) {
    const uint64_t A = p->num_actions, table = p->num_states * A;
    const uint32_t *restrict policy_threshold = p->policy_threshold + p->agent_policy[i] * table;
    const uint32_t *restrict policy_alias = p->policy_alias + p->agent_policy[i] * table;
    const uint64_t *restrict row_start = p->row_start + p->agent_mdp[i] * table;
    const double *restrict rewards = p->rewards + p->agent_mdp[i] * table;
    const uint32_t *restrict threshold = p->threshold, *restrict stay = p->stay, *restrict go = p->go;
    double *restrict difference = acc->difference;
    const double discount = p->discount, step_size = p->step_size;
    uint64_t random[4] = {agent->random[0], agent->random[1], agent->random[2], agent->random[3]};
    uint64_t state = agent->state;

    for (uint64_t t = 0; t < num_steps; t++) {
        const uint64_t words = next_random(random);

        const uint64_t draw = (words >> 32) * A, slot = draw >> 32, at = state * A + slot;
        const uint64_t cell = state * A + choose((uint32_t)draw < policy_threshold[at], slot, policy_alias[at]);

        const uint64_t start = row_start[cell], branching = row_start[cell + 1] - start;
        const uint64_t move = (uint32_t)words * branching, to = start + (move >> 32);
        state = choose((uint32_t)move < threshold[to], stay[to], go[to]);

        const double *next = q + state * A;
        double best = next[0];
        for (uint64_t a = 1; a < A; a++) best = next[a] > best ? next[a] : best;
        const double old = q[cell];
        log[t] = (Entry){cell, old};
        const double change = step_size * (rewards[cell] + discount * best - old);
        q[cell] = old + change;
        difference[cell] += change;
    }

    for (uint64_t t = num_steps; t-- > 0;) {
        const uint64_t cell = log[t].cell;
        q[cell] = log[t].old;
        if (sparse) {
            acc->touched[acc->num_touched] = (uint32_t)cell;
            acc->num_touched += acc->stamp[cell] != round;
            acc->stamp[cell] = round;
        }
    }
    memcpy(agent->random, random, sizeof random);
    agent->state = state;
}

static double squared_sup_distance(const double *x, const double *y, uint64_t size) {
    double largest = 0;
#pragma omp simd reduction(max : largest)
    for (uint64_t c = 0; c < size; c++) {
        const double distance = fabs(x[c] - y[c]);
        largest = distance > largest ? distance : largest;
    }
    return largest * largest;
}

static void run_rounds(const Problem *p, Agent *agents, uint64_t sync_period, uint64_t num_steps, double *q, Entry *log,
                       Accumulator *acc, const double *fixed_point, double *squared_error, int sparse) {
    const uint64_t table = p->num_states * p->num_actions;
    const double share = 1.0 / (double)p->num_agents;
    uint32_t round = 0;

    for (uint64_t done = 0; done < num_steps; done += sync_period) {
        const uint64_t steps = num_steps - done < sync_period ? num_steps - done : sync_period;
        round++;
        for (uint64_t i = 0; i < p->num_agents; i++)
            local_round(p, i, &agents[i], steps, q, log, acc, round, sparse);
        if (sparse) {
            for (uint64_t n = 0; n < acc->num_touched; n++) {
                const uint32_t cell = acc->touched[n];
                q[cell] += share * acc->difference[cell];
                acc->difference[cell] = 0;
            }
            acc->num_touched = 0;
        } else {
            for (uint64_t c = 0; c < table; c++) {
                q[c] += share * acc->difference[c];
                acc->difference[c] = 0;
            }
        }
        if (squared_error) *squared_error++ = squared_sup_distance(q, fixed_point, table);
    }
}

/* q holds the initial table at the start and the agents' average at the end. squared_error, unless NULL, receives
 * ||q - fixed_point||^2 in the sup norm after every sync and after the last step. Returns 0, or 1 if memory runs out. */
int q_learning(const Problem *p, uint64_t seed, uint64_t sync_period, uint64_t num_steps, double *q,
               const double *fixed_point, double *squared_error) {
    const uint64_t table = p->num_states * p->num_actions;
    const int sparse = p->num_agents * sync_period < table;
    Agent *agents = malloc(p->num_agents * sizeof *agents);
    Entry *log = malloc(sync_period * sizeof *log);
    Accumulator acc = {
        .difference = calloc(table, sizeof *acc.difference),
        .stamp = calloc(table, sizeof *acc.stamp),
        .touched = malloc((table + 1) * sizeof *acc.touched),
    };
    const int short_of_memory = !(agents && log && acc.difference && acc.stamp && acc.touched);

    if (!short_of_memory) {
        for (uint64_t i = 0; i < p->num_agents; i++) {
            for (int n = 0; n < 4; n++) agents[i].random[n] = splitmix(&seed);
            agents[i].state = ((next_random(agents[i].random) >> 32) * p->num_states) >> 32;
        }
        if (sparse)
            run_rounds(p, agents, sync_period, num_steps, q, log, &acc, fixed_point, squared_error, 1);
        else
            run_rounds(p, agents, sync_period, num_steps, q, log, &acc, fixed_point, squared_error, 0);
    }
    free(agents);
    free(log);
    free(acc.difference);
    free(acc.stamp);
    free(acc.touched);
    return short_of_memory;
}
